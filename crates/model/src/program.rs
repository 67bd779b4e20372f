//! What this program can do, as far as its build decided that.

/// Why this program cannot open shared libraries; `None` where it can.
///
/// A static program has no loader in it: musl's `dlopen` only says no (musl's src/ldso/dlopen.c). Whoever wants a library asks
/// here first, so that a file that is there is not called missing.
pub const NO_LIBRARIES: Option<&str> = if cfg!(target_feature = "crt-static") {
    Some("this busbw is the static program, which cannot open libraries: install busbw's .deb or wheel")
} else {
    None
};
