//! The readers on real files, on torn ones, and on what must not be taken for theirs.

mod evidence;
mod hostile;
mod nccl_tests;
mod nccl_tests_json;
mod small_formats;
