//! The functions of any version, with what differs between versions brought into one form.

use busbw_nccl_abi::net::*;
use std::ffi::c_int;

/// A plugin's functions. Those of one form in all versions stand as they are; the others by their forms.
#[derive(Clone, Copy)]
pub(super) struct Calls {
    pub init: InitForm,
    pub devices: Devices,
    pub properties: PropertiesForm,
    pub listen: ListenForm,
    pub connect: ConnectForm,
    pub accept: AcceptForm,
    pub register: RegisterForm,
    pub deregister: DeregisterMemory,
    pub isend: IsendForm,
    pub irecv: IrecvForm,
    pub iflush: Iflush,
    pub test: Test,
    pub close_send: Close,
    pub close_recv: Close,
    pub close_listen: Close,
    pub finalize: Close,
}

#[derive(Clone, Copy)]
pub(super) enum InitForm {
    Plain(Init),
    Profiled(InitWithProfiler),
    Context(InitContext),
}

#[derive(Clone, Copy)]
pub(super) enum PropertiesForm {
    V6(GetProperties<PropertiesV6>),
    V7(GetProperties<PropertiesV7>),
    V8(GetProperties<PropertiesV8>),
    V9(GetProperties<PropertiesV9<4>>),
    V11(GetProperties<PropertiesV11>),
    V12(GetProperties<PropertiesV12>),
}

#[derive(Clone, Copy)]
pub(super) enum ListenForm {
    Plain(Listen),
    Context(ListenInContext),
}

#[derive(Clone, Copy)]
pub(super) enum ConnectForm {
    Plain(Connect),
    Offload(ConnectWithOffload),
    Config(ConnectWithConfig),
    Context(ConnectInContext),
}

#[derive(Clone, Copy)]
pub(super) enum AcceptForm {
    Plain(Accept),
    Offload(AcceptWithOffload),
}

#[derive(Clone, Copy)]
pub(super) enum RegisterForm {
    Int(RegisterMemory<c_int>),
    Size(RegisterMemory<usize>),
}

#[derive(Clone, Copy)]
pub(super) enum IsendForm {
    Int(Isend<c_int>),
    Size(Isend<usize>),
    Profiled(IsendProfiled),
}

#[derive(Clone, Copy)]
pub(super) enum IrecvForm {
    Int(Irecv<c_int>),
    Size(Irecv<usize>),
    Profiled(IrecvProfiled),
}

/// The forms that a version has.
macro_rules! calls {
    ($table:ident, finalize: $finalize:expr, $($field:ident: $form:expr),+ $(,)?) => {
        Calls {
            $($field: $form($table.$field),)+
            devices: $table.devices,
            deregister: $table.deregister,
            iflush: $table.iflush,
            test: $table.test,
            close_send: $table.close_send,
            close_recv: $table.close_recv,
            close_listen: $table.close_listen,
            finalize: $finalize,
        }
    };
}

impl From<&NetV6> for Calls {
    fn from(table: &NetV6) -> Self {
        calls!(table, finalize: None, init: InitForm::Plain, properties: PropertiesForm::V6, listen: ListenForm::Plain,
            connect: ConnectForm::Plain, accept: AcceptForm::Plain, register: RegisterForm::Int, isend: IsendForm::Int,
            irecv: IrecvForm::Int)
    }
}

impl From<&NetV7> for Calls {
    fn from(table: &NetV7) -> Self {
        calls!(table, finalize: None, init: InitForm::Plain, properties: PropertiesForm::V7, listen: ListenForm::Plain,
            connect: ConnectForm::Offload, accept: AcceptForm::Offload, register: RegisterForm::Int,
            isend: IsendForm::Int, irecv: IrecvForm::Int)
    }
}

impl From<&NetV8> for Calls {
    fn from(table: &NetV8) -> Self {
        calls!(table, finalize: None, init: InitForm::Plain, properties: PropertiesForm::V8, listen: ListenForm::Plain,
            connect: ConnectForm::Offload, accept: AcceptForm::Offload, register: RegisterForm::Size,
            isend: IsendForm::Int, irecv: IrecvForm::Int)
    }
}

impl From<&NetV9> for Calls {
    fn from(table: &NetV9) -> Self {
        calls!(table, finalize: None, init: InitForm::Plain, properties: PropertiesForm::V9, listen: ListenForm::Plain,
            connect: ConnectForm::Offload, accept: AcceptForm::Offload, register: RegisterForm::Size,
            isend: IsendForm::Size, irecv: IrecvForm::Size)
    }
}

impl From<&NetV10> for Calls {
    fn from(table: &NetV10) -> Self {
        calls!(table, finalize: None, init: InitForm::Profiled, properties: PropertiesForm::V9,
            listen: ListenForm::Plain, connect: ConnectForm::Config, accept: AcceptForm::Offload,
            register: RegisterForm::Size, isend: IsendForm::Profiled, irecv: IrecvForm::Profiled)
    }
}

impl From<&NetV11> for Calls {
    fn from(table: &NetV11) -> Self {
        calls!(table, finalize: table.more.finalize, init: InitForm::Context, properties: PropertiesForm::V11,
            listen: ListenForm::Context, connect: ConnectForm::Context, accept: AcceptForm::Offload,
            register: RegisterForm::Size, isend: IsendForm::Profiled, irecv: IrecvForm::Profiled)
    }
}

impl From<&NetV12> for Calls {
    fn from(table: &NetV12) -> Self {
        calls!(table, finalize: table.more.finalize, init: InitForm::Context, properties: PropertiesForm::V12,
            listen: ListenForm::Context, connect: ConnectForm::Context, accept: AcceptForm::Offload,
            register: RegisterForm::Size, isend: IsendForm::Profiled, irecv: IrecvForm::Profiled)
    }
}
