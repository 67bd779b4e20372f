//! What the library exports: the table of each version of the interface.

use crate::shims::{
    self, accept, accept_with_offload, connect, connect_in_context, connect_with_config, connect_with_offload, init,
    init_context, init_with_profiler, irecv, irecv_profiled, isend, isend_profiled, listen, listen_in_context,
    register,
};
use busbw_nccl_abi::net::{NetV6, NetV7, NetV8, NetV9, NetV10, NetV11, NetV12, Offload, WithContext, WithVirtual};
use std::ffi::c_int;

const OFFLOAD: Offload = Offload { device_memory: None, recv_consumed: None };

const fn with_virtual<const MOST: usize>() -> WithVirtual<MOST> {
    WithVirtual { offload: OFFLOAD, make_virtual: None }
}

const fn with_context<const MOST: usize>() -> WithContext<MOST> {
    WithContext { devices: with_virtual(), finalize: Some(shims::finalize), set_attributes: None }
}

/// A table: what all versions have, the functions that take their arguments in this one's form, and what it has beside them.
macro_rules! table {
    ($(#[$about:meta])* $name:ident: $version:ident
     ($init:expr, $listen:expr, $connect:expr, $accept:expr, $register:expr, $isend:expr, $irecv:expr)
     $more:expr) => {
        $(#[$about])*
        #[unsafe(no_mangle)]
        #[allow(non_upper_case_globals, reason = "NCCL looks for this name")]
        pub static $name: $version = $version {
            name: c"busbw".as_ptr(),
            init: Some($init),
            devices: Some(shims::devices),
            properties: Some(shims::properties),
            listen: Some($listen),
            connect: Some($connect),
            accept: Some($accept),
            register: Some($register),
            register_dmabuf: None,
            deregister: Some(shims::deregister),
            isend: Some($isend),
            irecv: Some($irecv),
            iflush: Some(shims::iflush),
            test: Some(shims::test),
            close_send: Some(shims::close_connection),
            close_recv: Some(shims::close_connection),
            close_listen: Some(shims::close_listen),
            more: $more,
        };
    };
}

table!(
    /// For NCCL 2.18 and older.
    ncclNetPlugin_v6: NetV6 (init, listen, connect, accept, register::<c_int>, isend::<c_int>, irecv::<c_int>) ()
);

table!(
    /// For NCCL 2.19.
    ncclNetPlugin_v7: NetV7 (init, listen, connect_with_offload, accept_with_offload, register::<c_int>, isend::<c_int>, irecv::<c_int>)
    OFFLOAD
);

table!(
    /// For NCCL 2.20 to 2.23.
    ncclNetPlugin_v8: NetV8 (init, listen, connect_with_offload, accept_with_offload, register::<usize>, isend::<c_int>, irecv::<c_int>)
    OFFLOAD
);

table!(
    /// For NCCL 2.24 and 2.25.
    ncclNetPlugin_v9: NetV9 (init, listen, connect_with_offload, accept_with_offload, register::<usize>, isend::<usize>, irecv::<usize>)
    with_virtual()
);

table!(
    /// For NCCL 2.26 and 2.27.
    ncclNetPlugin_v10: NetV10 (init_with_profiler, listen, connect_with_config, accept_with_offload, register::<usize>, isend_profiled, irecv_profiled)
    with_virtual()
);

table!(
    /// For NCCL 2.28 and 2.29.
    ncclNetPlugin_v11: NetV11 (init_context, listen_in_context, connect_in_context, accept_with_offload, register::<usize>, isend_profiled, irecv_profiled)
    with_context()
);

table!(
    /// For NCCL 2.30 and newer.
    ncclNetPlugin_v12: NetV12 (init_context, listen_in_context, connect_in_context, accept_with_offload, register::<usize>, isend_profiled, irecv_profiled)
    with_context()
);
