//! Gives the library the name that NCCL opens it by.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libnccl-net-busbw.so");
    println!("cargo::rerun-if-changed=build.rs");
}
