//! Launches.

use core::ffi::{c_uint, c_void};

use crate::driver::Status;
use crate::guard;
use crate::record::{self, Launch};

hooks! {
    /// Launches a kernel.
    cuLaunchKernel(
        function: usize, gx: c_uint, gy: c_uint, gz: c_uint, tx: c_uint, ty: c_uint, tz: c_uint, shared: c_uint,
        stream: usize, values: *mut *mut c_void, extra: *mut *mut c_void,
    ) |real| {
        let launch = Launch::new(function, [gx, gy, gz], [tx, ty, tz], shared, stream).with(values, extra);
        around(launch, || real(function, gx, gy, gz, tx, ty, tz, shared, stream, values, extra))
    }
    /// Launches a kernel; the default stream is that of the thread.
    cuLaunchKernel_ptsz(
        function: usize, gx: c_uint, gy: c_uint, gz: c_uint, tx: c_uint, ty: c_uint, tz: c_uint, shared: c_uint,
        stream: usize, values: *mut *mut c_void, extra: *mut *mut c_void,
    ) |real| {
        let launch = Launch::new(function, [gx, gy, gz], [tx, ty, tz], shared, stream).with(values, extra);
        around(launch, || real(function, gx, gy, gz, tx, ty, tz, shared, stream, values, extra))
    }
    /// Launches a kernel whose CTAs are all resident.
    cuLaunchCooperativeKernel(
        function: usize, gx: c_uint, gy: c_uint, gz: c_uint, tx: c_uint, ty: c_uint, tz: c_uint, shared: c_uint,
        stream: usize, values: *mut *mut c_void,
    ) |real| {
        let extra = core::ptr::null_mut();
        let launch = Launch::new(function, [gx, gy, gz], [tx, ty, tz], shared, stream).with(values, extra);
        around(launch, || real(function, gx, gy, gz, tx, ty, tz, shared, stream, values))
    }
    /// Launches a kernel whose CTAs are all resident; the default stream is that of the thread.
    cuLaunchCooperativeKernel_ptsz(
        function: usize, gx: c_uint, gy: c_uint, gz: c_uint, tx: c_uint, ty: c_uint, tz: c_uint, shared: c_uint,
        stream: usize, values: *mut *mut c_void,
    ) |real| {
        let extra = core::ptr::null_mut();
        let launch = Launch::new(function, [gx, gy, gz], [tx, ty, tz], shared, stream).with(values, extra);
        around(launch, || real(function, gx, gy, gz, tx, ty, tz, shared, stream, values))
    }
    /// Launches a kernel with attributes.
    cuLaunchKernelEx(config: *const Config, function: usize, values: *mut *mut c_void, extra: *mut *mut c_void) |real| {
        around((*config).launch(function).with(values, extra), || real(config, function, values, extra))
    }
    /// Launches a kernel with attributes; the default stream is that of the thread.
    cuLaunchKernelEx_ptsz(
        config: *const Config, function: usize, values: *mut *mut c_void, extra: *mut *mut c_void,
    ) |real| {
        around((*config).launch(function).with(values, extra), || real(config, function, values, extra))
    }
}

/// Makes a launch, and records it before and after, if it is chosen.
fn around(launch: Launch, run: impl FnOnce() -> Status) -> Status {
    let recording = guard(|| record::before(&launch)).flatten();
    let status = run();
    if let Some(recording) = recording {
        guard(|| record::after(recording, status));
    }
    status
}

/// `CUlaunchConfig`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Config {
    grid: [c_uint; 3],
    threads: [c_uint; 3],
    shared: c_uint,
    stream: usize,
    attributes: *const Attribute,
    count: c_uint,
}

/// `CUlaunchAttribute`.
#[repr(C)]
#[derive(Debug)]
struct Attribute {
    id: c_uint,
    pad: c_uint,
    value: [u32; 16],
}

/// `CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION`.
const CLUSTER: c_uint = 4;
/// `CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION`.
const DEPENDENT: c_uint = 6;

impl Config {
    fn launch(&self, function: usize) -> Launch {
        let mut launch = Launch::new(function, self.grid, self.threads, self.shared, self.stream);
        for number in 0..self.count as usize {
            // SAFETY: the caller of the launch says how many attributes there are.
            let Attribute { id, value, .. } = unsafe { &*self.attributes.add(number) };
            match *id {
                CLUSTER => launch.cluster = Some([value[0], value[1], value[2]]),
                DEPENDENT => launch.dependent = value[0] != 0,
                _ => {}
            }
        }
        launch
    }
}

#[cfg(test)]
mod tests {
    use super::{Attribute, Config};

    #[test]
    fn structures_are_laid_out_as_in_the_header() {
        assert_eq!((size_of::<Attribute>(), core::mem::offset_of!(Attribute, value)), (72, 8));
        assert_eq!((size_of::<Config>(), core::mem::offset_of!(Config, stream)), (56, 32));
        assert_eq!(core::mem::offset_of!(Config, count), 48);
    }
}
