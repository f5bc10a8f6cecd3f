//! What every request passes on its way to a route, outermost first:
//! request id, access log, measuring, panic guard, CORS, API key.

pub mod access_log;
pub mod auth;
pub mod cors;
pub mod measure;
pub mod panic;
pub mod request_id;
