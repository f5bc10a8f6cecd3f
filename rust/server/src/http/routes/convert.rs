//! Request fields that chat and completions share, to the client's options.

use octavo_protocol::{RefusedFields, SamplingFields};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::client::{SamplingOptions, Side};
use crate::http::error::{ApiError, ApiResult};
use crate::http::excerpt::excerpt;
use crate::http::middleware::auth::Tenant;
use crate::http::request::JsonBody;

/// A request's sampling fields.
///
/// # Errors
/// 400, naming the field.
pub fn sampling(body: &JsonBody) -> ApiResult<SamplingFields> {
    let fields: SamplingFields = body.view()?;
    if fields.stream_options.is_some() {
        // The reader takes a list for a struct, too.
        body.view::<Objects>()?;
    }
    Ok(fields)
}

/// Fields that must be objects.
#[derive(Deserialize)]
struct Objects {
    #[serde(rename = "stream_options")]
    _stream_options: Option<Map<String, Value>>,
}

/// The client's options, but for what each route names in its own way:
/// `max_tokens` and `logprobs`. `key` is the tenant by API key, if keys tell
/// tenants apart.
///
/// # Errors
/// Invalid, naming the field.
pub fn options(fields: &SamplingFields, key: Option<Tenant>) -> ApiResult<SamplingOptions> {
    Ok(SamplingOptions {
        n: fields.n.unwrap_or(1),
        temperature: fields.temperature,
        top_p: fields.top_p,
        top_k: fields.top_k,
        min_p: fields.min_p,
        presence_penalty: fields.presence_penalty.unwrap_or(0.0),
        frequency_penalty: fields.frequency_penalty.unwrap_or(0.0),
        repetition_penalty: fields.repetition_penalty,
        seed: fields.seed,
        stop: fields.stop.as_ref().map(|stop| stop.0.clone()).unwrap_or_default(),
        stop_token_ids: fields.stop_token_ids.clone().unwrap_or_default(),
        include_stop_str_in_output: fields.include_stop_str_in_output.unwrap_or(false),
        ignore_eos: fields.ignore_eos.unwrap_or(false),
        max_tokens: None,
        min_tokens: fields.min_tokens.unwrap_or(0),
        logprobs: None,
        prompt_logprobs: fields.prompt_logprobs,
        logit_bias: logit_bias(fields)?,
        detokenize: true,
        skip_special_tokens: fields.skip_special_tokens.unwrap_or(true),
        priority: fields.priority.unwrap_or(0),
        tenant: key.or_else(|| fields.user.as_deref().map(Tenant::new)).map_or(0, |tenant| tenant.0),
        timeout_s: fields.timeout_s,
        queue_timeout_s: fields.queue_timeout_s,
        cache_salt: fields.cache_salt.clone(),
        cache_ttl_s: fields.cache_ttl_s,
        cache_prefixes: Vec::new(),
        truncate_prompt_tokens: fields.truncate_prompt_tokens,
        truncation_side: match fields.truncation_side.as_deref() {
            None | Some("left") => Side::Left,
            Some("right") => Side::Right,
            Some(side) => {
                let side = excerpt(side);
                let message = format!("truncation_side is {side:?}; it must be left or right");
                return Err(ApiError::invalid("truncation_side", message));
            }
        },
    })
}

fn logit_bias(fields: &SamplingFields) -> ApiResult<Vec<(i64, f32)>> {
    let parse = |(id, bias): (&String, &f32)| match id.parse::<i64>() {
        // Without sign and leading zeros, so that a token has one spelling.
        Ok(number) if number >= 0 && number.to_string() == *id => Ok((number, *bias)),
        _ => {
            let id = excerpt(id);
            let message = format!("logit_bias: {id:?} is not a token id in plain decimal digits");
            Err(ApiError::invalid("logit_bias", message))
        }
    };
    fields.logit_bias.iter().flatten().map(parse).collect()
}

/// Refuses fields that would change the outcome but are not supported yet.
///
/// # Errors
/// Invalid, naming the field.
pub fn refuse(fields: &RefusedFields) -> ApiResult<()> {
    let given = [
        ("use_beam_search", &fields.use_beam_search),
        ("length_penalty", &fields.length_penalty),
        ("best_of", &fields.best_of),
        ("suffix", &fields.suffix),
        ("prompt_embeds", &fields.prompt_embeds),
        ("bad_words", &fields.bad_words),
        ("allowed_token_ids", &fields.allowed_token_ids),
        ("logprob_token_ids", &fields.logprob_token_ids),
        ("structured_outputs", &fields.structured_outputs),
        ("guided_json", &fields.guided_json),
        ("guided_regex", &fields.guided_regex),
        ("guided_choice", &fields.guided_choice),
        ("guided_grammar", &fields.guided_grammar),
        ("guided_decoding_backend", &fields.guided_decoding_backend),
        ("guided_whitespace_pattern", &fields.guided_whitespace_pattern),
        ("response_format", &fields.response_format),
        ("thinking_token_budget", &fields.thinking_token_budget),
        ("mm_processor_kwargs", &fields.mm_processor_kwargs),
        ("media_io_kwargs", &fields.media_io_kwargs),
        ("mm_payload", &fields.mm_payload),
        ("return_token_offsets", &fields.return_token_offsets),
        ("kv_transfer_params", &fields.kv_transfer_params),
        ("ec_transfer_params", &fields.ec_transfer_params),
        ("vllm_xargs", &fields.vllm_xargs),
        ("repetition_detection", &fields.repetition_detection),
        ("stream_interval", &fields.stream_interval),
        ("watermarking", &fields.watermarking),
        ("routed_experts_prompt_start", &fields.routed_experts_prompt_start),
        ("functions", &fields.functions),
        ("function_call", &fields.function_call),
    ];
    for (name, value) in given {
        if let Some(value) = value
            && !has_no_effect(name, value)
        {
            let message = format!("{name} is not supported yet; leave it out");
            return Err(ApiError::invalid(name, message));
        }
    }
    Ok(())
}

/// True for a value that asks for what happens anyway.
fn has_no_effect(name: &str, value: &Value) -> bool {
    match (name, value) {
        (_, Value::Null | Value::Bool(false)) => true,
        ("length_penalty", Value::Number(number)) => number.as_f64() == Some(1.0),
        ("best_of" | "stream_interval", Value::Number(number)) => number.as_u64() == Some(1),
        ("routed_experts_prompt_start", Value::Number(number)) => number.as_u64() == Some(0),
        ("thinking_token_budget", Value::Number(number)) => number.as_i64() == Some(-1),
        ("response_format", Value::Object(format)) => {
            format.get("type").and_then(Value::as_str) == Some("text")
        }
        ("function_call", Value::String(choice)) => choice == "none",
        ("suffix", Value::String(suffix)) => suffix.is_empty(),
        // `allowed_token_ids: []` would allow nothing, which is not the same as being absent.
        ("allowed_token_ids", _) => false,
        (_, Value::Array(list)) => list.is_empty(),
        (_, Value::Object(map)) => map.is_empty(),
        _ => false,
    }
}
