//! Calls from browsers on other origins.

use std::str::FromStr;

use octavo_core::{Error, Result};
use tower_http::cors::{AllowHeaders, AllowMethods, AllowOrigin, CorsLayer};

use crate::http::config::CorsConfig;

/// The layer, or `None` while no origin is allowed.
///
/// # Errors
/// Invalid: a value is not an origin, method or header, or credentials are
/// allowed to everybody.
pub fn layer(config: &CorsConfig) -> Result<Option<CorsLayer>> {
    if config.allowed_origins.is_empty() {
        return Ok(None);
    }
    let everybody = is_any(&config.allowed_origins);
    if everybody && config.allow_credentials {
        let message =
            "allow_credentials needs allowed_origins to be listed; * would let any site act as its users";
        return Err(Error::invalid("allow_credentials", message));
    }
    let origins = if everybody {
        AllowOrigin::any()
    } else {
        AllowOrigin::list(parse::<axum::http::HeaderValue>("allowed_origins", &config.allowed_origins)?)
    };
    // With credentials browsers take `*` for a literal, so what they ask for is echoed.
    let methods = match (is_any(&config.allowed_methods), config.allow_credentials) {
        (true, true) => AllowMethods::mirror_request(),
        (true, false) => AllowMethods::any(),
        (false, _) => AllowMethods::list(parse("allowed_methods", &config.allowed_methods)?),
    };
    let headers = match (is_any(&config.allowed_headers), config.allow_credentials) {
        (true, true) => AllowHeaders::mirror_request(),
        (true, false) => AllowHeaders::any(),
        (false, _) => AllowHeaders::list(parse("allowed_headers", &config.allowed_headers)?),
    };
    let layer = CorsLayer::new().allow_origin(origins).allow_methods(methods).allow_headers(headers);
    Ok(Some(layer.allow_credentials(config.allow_credentials)))
}

fn is_any(values: &[String]) -> bool {
    values.iter().any(|value| value == "*")
}

fn parse<T: FromStr>(param: &'static str, values: &[String]) -> Result<Vec<T>> {
    let parse_one = |value: &String| {
        value
            .parse()
            .map_err(|_| Error::invalid(param, format!("{param}: {value:?} cannot be sent in a header")))
    };
    values.iter().map(parse_one).collect()
}
