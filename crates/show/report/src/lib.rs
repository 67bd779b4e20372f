//! What busbw found, for people and for programs.
//!
//! A [`Prediction`](busbw_predict::Prediction) becomes a table of nccl-tests' shape, JSON or a page, and a [`Comparison`] of
//! simulated fabrics text, JSON or a page. A [`Run`](busbw_model::Run) and a [`Diagnosis`](busbw_model::Diagnosis) become terminal text ([`text`]), JSON
//! ([`json`], schema `busbw.explain/1`), JUnit XML ([`junit`]) or one self-contained web page ([`html`]). Nothing here judges, reads or opens
//! anything: every function returns a `String` or writes to the writer it is handed. What logs say is untrusted: text
//! and page never pass on a control character.

#![forbid(unsafe_code)]

mod description;
mod histogram;
pub mod html;
pub mod json;
pub mod junit;
mod letters;
mod link;
mod profile;
pub mod prometheus;
mod remedy;
mod scenario;
mod style;
pub mod text;
mod words;

pub use scenario::{Comparison, Scenario};
