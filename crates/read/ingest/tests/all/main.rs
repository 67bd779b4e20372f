//! The readers on real files, on torn ones, and on what must not be taken for theirs.

mod evidence;
mod hostile;
mod nccl_tests;
mod nccl_tests_json;
mod small_formats;

/// Cases of a test, from `tests/data/cases.toml`.
fn cases<T: serde::de::DeserializeOwned>(name: &str) -> Vec<T> {
    let mut lists: toml::Table = toml::from_str(include_str!("../data/cases.toml")).expect("TOML");
    lists.remove(name).expect("a list").try_into().expect("cases")
}
