//! What the library exports: the table of each version of the interface.

use crate::shims;
use busbw_nccl_abi::net::{NetV6, NetV7, NetV8, NetV9, NetV10, NetV11, NetV12};
use std::ffi::c_int;

/// A table: what all versions have, then what this one has in its own form.
macro_rules! table {
    ($(#[$about:meta])* $name:ident: $version:ident { $($own:ident: $function:expr),* $(,)? }) => {
        $(#[$about])*
        #[unsafe(no_mangle)]
        #[allow(non_upper_case_globals, reason = "NCCL looks for this name")]
        pub static $name: $version = $version {
            name: c"busbw".as_ptr(),
            devices: Some(shims::devices),
            properties: Some(shims::properties),
            register_dmabuf: None,
            deregister: Some(shims::deregister),
            iflush: Some(shims::iflush),
            test: Some(shims::test),
            close_send: Some(shims::close_connection),
            close_recv: Some(shims::close_connection),
            close_listen: Some(shims::close_listen),
            $($own: $function),*
        };
    };
}

table!(
    /// For NCCL 2.18 and older.
    ncclNetPlugin_v6: NetV6 {
        init: Some(shims::init),
        listen: Some(shims::listen),
        connect: Some(shims::connect),
        accept: Some(shims::accept),
        register: Some(shims::register::<c_int>),
        isend: Some(shims::isend::<c_int>),
        irecv: Some(shims::irecv::<c_int>),
    }
);

table!(
    /// For NCCL 2.19.
    ncclNetPlugin_v7: NetV7 {
        init: Some(shims::init),
        listen: Some(shims::listen),
        connect: Some(shims::connect_with_offload),
        accept: Some(shims::accept_with_offload),
        register: Some(shims::register::<c_int>),
        isend: Some(shims::isend::<c_int>),
        irecv: Some(shims::irecv::<c_int>),
        device_memory: None,
        recv_consumed: None,
    }
);

table!(
    /// For NCCL 2.20 to 2.23.
    ncclNetPlugin_v8: NetV8 {
        init: Some(shims::init),
        listen: Some(shims::listen),
        connect: Some(shims::connect_with_offload),
        accept: Some(shims::accept_with_offload),
        register: Some(shims::register::<usize>),
        isend: Some(shims::isend::<c_int>),
        irecv: Some(shims::irecv::<c_int>),
        device_memory: None,
        recv_consumed: None,
    }
);

table!(
    /// For NCCL 2.24 and 2.25.
    ncclNetPlugin_v9: NetV9 {
        init: Some(shims::init),
        listen: Some(shims::listen),
        connect: Some(shims::connect_with_offload),
        accept: Some(shims::accept_with_offload),
        register: Some(shims::register::<usize>),
        isend: Some(shims::isend::<usize>),
        irecv: Some(shims::irecv::<usize>),
        device_memory: None,
        recv_consumed: None,
        make_virtual: None,
    }
);

table!(
    /// For NCCL 2.26 and 2.27.
    ncclNetPlugin_v10: NetV10 {
        init: Some(shims::init_with_profiler),
        listen: Some(shims::listen),
        connect: Some(shims::connect_with_config),
        accept: Some(shims::accept_with_offload),
        register: Some(shims::register::<usize>),
        isend: Some(shims::isend_profiled),
        irecv: Some(shims::irecv_profiled),
        device_memory: None,
        recv_consumed: None,
        make_virtual: None,
    }
);

table!(
    /// For NCCL 2.28 and 2.29.
    ncclNetPlugin_v11: NetV11 {
        init: Some(shims::init_context),
        listen: Some(shims::listen_in_context),
        connect: Some(shims::connect_in_context),
        accept: Some(shims::accept_with_offload),
        register: Some(shims::register::<usize>),
        isend: Some(shims::isend_profiled),
        irecv: Some(shims::irecv_profiled),
        device_memory: None,
        recv_consumed: None,
        make_virtual: None,
        finalize: Some(shims::finalize),
        set_attributes: None,
    }
);

table!(
    /// For NCCL 2.30 and newer.
    ncclNetPlugin_v12: NetV12 {
        init: Some(shims::init_context),
        listen: Some(shims::listen_in_context),
        connect: Some(shims::connect_in_context),
        accept: Some(shims::accept_with_offload),
        register: Some(shims::register::<usize>),
        isend: Some(shims::isend_profiled),
        irecv: Some(shims::irecv_profiled),
        device_memory: None,
        recv_consumed: None,
        make_virtual: None,
        finalize: Some(shims::finalize),
        set_attributes: None,
    }
);
