//! Compiles the logger that plugins are handed: stable Rust cannot define a function of C with variable arguments.

fn main() {
    println!("cargo::rerun-if-changed=src/api/logger.c");
    cc::Build::new().file("src/api/logger.c").warnings(true).compile("busbw_plugin_logger");
}
