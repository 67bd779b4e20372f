//! What is read in a browser: the page of busbw explain, a trace of busbw profile, and the book of docs/ (`make test-all`).

mod book;
mod browser;
mod chromium;
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../support/skip.rs"]
mod skip;
mod trace;
