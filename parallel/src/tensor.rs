//! Numbers in a rank's device memory.

use core::marker::PhantomData;
use core::ops::{Bound, RangeBounds};
use std::sync::Arc;

use falchion::kernel::driver::cudarc::Loan;

use crate::device::Memory;
use crate::element::Element;
use crate::error::Error;

/// Packed numbers in a rank's device memory. They are freed with the value, after the work that was enqueued
/// with them.
#[derive(Clone, Debug)]
pub struct Tensor<T> {
    pub(crate) memory: Arc<Memory>,
    len: usize,
    of: PhantomData<T>,
}

/// Numbers that are read.
#[derive(Clone, Copy, Debug)]
pub struct Slice<'a, T> {
    address: u64,
    len: usize,
    of: PhantomData<&'a T>,
}

/// Numbers that are written.
#[derive(Debug)]
pub struct SliceMut<'a, T> {
    address: u64,
    len: usize,
    of: PhantomData<&'a mut T>,
}

impl<T: Element> Tensor<T> {
    pub(crate) fn new(memory: Memory, len: usize) -> Self {
        Self { memory: Arc::new(memory), len, of: PhantomData }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All of them, to be read.
    pub fn view(&self) -> Slice<'_, T> {
        Slice { address: self.memory.buffer.address, len: self.len, of: PhantomData }
    }

    /// All of them, to be written.
    pub fn view_mut(&mut self) -> SliceMut<'_, T> {
        SliceMut { address: self.memory.buffer.address, len: self.len, of: PhantomData }
    }
}

/// Where a range begins, and its length, among `len` elements.
fn bounds(range: &impl RangeBounds<usize>, len: usize) -> Result<[usize; 2], Error> {
    let begin = match range.start_bound() {
        Bound::Included(&begin) => begin,
        Bound::Excluded(&before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(&last) => last.saturating_add(1),
        Bound::Excluded(&end) => end,
        Bound::Unbounded => len,
    };
    match begin <= end && end <= len {
        true => Ok([begin, end - begin]),
        false => Err(Error::argument("a range", format!("{begin}..{end}"), format!("a part of 0..{len}"))),
    }
}

impl<'a, T: Element> Slice<'a, T> {
    /// Numbers of other owners, at a device address.
    ///
    /// # Safety
    /// They stay allocated, and nobody writes them, until what is enqueued with the slice has ended.
    #[allow(unsafe_code, reason = "for memory of other owners")]
    pub unsafe fn from_raw(address: u64, len: usize) -> Self {
        Self { address, len, of: PhantomData }
    }

    /// A slice of cudarc that was lent ([`read`](falchion::kernel::driver::cudarc::read)) on the stream on which it is
    /// used: see [`Group::lend`](crate::Group::lend).
    ///
    /// # Errors
    /// Bytes that are no whole number of elements.
    pub fn of_loan(loan: &'a Loan<'_>) -> Result<Self, Error> {
        Ok(Self { address: loan.address(), len: lent::<T>(loan)?, of: PhantomData })
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Some of them.
    ///
    /// # Errors
    /// The range ends beyond the last one.
    pub fn part(&self, range: impl RangeBounds<usize>) -> Result<Slice<'a, T>, Error> {
        let [begin, len] = bounds(&range, self.len)?;
        Ok(Self { address: self.address + (begin * T::KIND.bytes()) as u64, len, of: PhantomData })
    }

    /// The device address of the first one, for [calls of any kernel](crate::Group::enqueue).
    pub fn address(&self) -> u64 {
        self.address
    }
}

/// Elements of what cudarc lends.
fn lent<T: Element>(loan: &Loan<'_>) -> Result<usize, Error> {
    let (bytes, width) = (loan.slice().bytes() as usize, T::KIND.bytes());
    if bytes.is_multiple_of(width) {
        return Ok(bytes / width);
    }
    Err(Error::argument(
        "the bytes of a slice",
        bytes,
        format!("a multiple of {width}, of a {}", T::KIND.name()),
    ))
}

impl<'a, T: Element> SliceMut<'a, T> {
    /// A slice of cudarc that was lent to be written ([`write`](falchion::kernel::driver::cudarc::write)).
    ///
    /// # Errors
    /// It was lent to be read; bytes that are no whole number of elements.
    pub fn of_loan(loan: &'a mut Loan<'_>) -> Result<Self, Error> {
        if !loan.slice().is_writable() {
            return Err(Error::argument("a slice", "lent to be read", "one that was lent to be written"));
        }
        Ok(Self { address: loan.address(), len: lent::<T>(loan)?, of: PhantomData })
    }
}

impl<T: Element> SliceMut<'_, T> {
    /// Numbers of other owners, at a device address.
    ///
    /// # Safety
    /// They stay allocated, and nobody else reads or writes them, until what is enqueued with the slice has
    /// ended.
    #[allow(unsafe_code, reason = "for memory of other owners")]
    pub unsafe fn from_raw(address: u64, len: usize) -> Self {
        Self { address, len, of: PhantomData }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Some of them.
    ///
    /// # Errors
    /// The range ends beyond the last one.
    pub fn part(&mut self, range: impl RangeBounds<usize>) -> Result<SliceMut<'_, T>, Error> {
        let [begin, len] = bounds(&range, self.len)?;
        Ok(SliceMut { address: self.address + (begin * T::KIND.bytes()) as u64, len, of: PhantomData })
    }

    /// The device address of the first one, for [calls of any kernel](crate::Group::enqueue).
    pub fn address(&self) -> u64 {
        self.address
    }
}
