//! Launches: the arguments of a call, as its kernel's interface states them.

use collective::operands::{Extents, Kind, Memory, Parameter, Visit};
use ptx::abi::{Argument, Grid};

use crate::accessed::check_accessed;
use crate::error::LaunchError;
use crate::kernel::Kernel;

/// The grid and the arguments of a call that has been checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// Number of CTAs.
    pub grid: Grid,
    /// Values of the kernel's parameters, in order.
    pub arguments: Vec<Argument>,
    /// What the interface says of each of them.
    pub(crate) places: Vec<Place>,
}

/// A parameter's name, and where its address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) name: &'static str,
    /// Which piece of the call's memory it is in, and how many bytes after the beginning. `None` of a number, and where there is no
    /// memory.
    pub(crate) within: Option<(Name, u64)>,
}

/// A piece of a call's memory by its name, and by its number among those of this name, as they are visited.
pub(crate) type Name = (&'static str, usize);

/// The names and addresses of a call's memory, as it is visited.
#[derive(Debug, Default)]
pub(crate) struct Named(Vec<(&'static str, u64)>);

impl Named {
    /// The piece with a name. Of pieces that one argument gives several times there may be fewer: they are all the last one.
    pub(crate) fn find(&self, (name, number): Name) -> Option<usize> {
        let mut with = (0..self.0.len()).filter(|&i| self.0[i].0 == name);
        let mut found = with.next()?;
        found = with.take(number).last().unwrap_or(found);
        Some(found)
    }

    /// The address of a piece.
    pub(crate) fn address(&self, which: usize) -> Option<u64> {
        self.0.get(which).map(|(_, address)| *address)
    }

    /// The piece that was visited last with a name, and its address.
    fn last(&self, name: &'static str) -> Option<(Name, u64)> {
        let count = self.0.iter().filter(|(known, _)| *known == name).count();
        let (_, address) = self.0.iter().rfind(|(known, _)| *known == name)?;
        Some(((name, count - 1), *address))
    }
}

impl Visit for Named {
    fn memory(&mut self, Memory { name, address, .. }: Memory<'_>) {
        self.0.push((name, *address));
    }
}

impl Launch {
    /// The launch of a call, whose kernel's interface is visited here: numbers must have their values.
    ///
    /// ```
    /// use collective::Format;
    /// use kernel::Launch;
    /// use kernel::operands::{Contents, Extents, Memory, Visit};
    /// use ptx::abi::Grid;
    ///
    /// let (mut address, rows) = (0x1000, 5);
    /// let launch = Launch::new(Grid { ctas: [1; 3] }, |visit| {
    ///     let (extents, contents) = (Extents::line(32, rows), Contents::Output(Format::F32));
    ///     visit.memory(Memory { name: "D", address: &mut address, extents, contents, writes: true });
    ///     visit.address("d", "D");
    ///     visit.number("rows", Some(rows));
    /// })?;
    /// assert_eq!(launch.arguments, [0x1000u64.into(), rows.into()]);
    /// # Ok::<(), kernel::LaunchError>(())
    /// ```
    ///
    /// # Errors
    /// [`LaunchError::Problem`]: a number or a tensor map has no value, or an address or a tensor map is of memory that was not
    /// visited before.
    pub fn new(grid: Grid, interface: impl FnOnce(&mut dyn Visit)) -> Result<Self, LaunchError> {
        let mut filling = Filling::default();
        interface(&mut filling);
        let Filling { arguments, places, fault, .. } = filling;
        match fault {
            Some(reason) => Err(LaunchError::Problem { reason }),
            None => Ok(Self { grid, arguments, places }),
        }
    }

    /// The launch of a call on this number of CTAs, as the kernel's interface fills it in; `None` on none. All memory that the
    /// call accesses is [checked](check_accessed); `alignment` is what a piece of it must begin at multiples of, in bytes.
    ///
    /// # Errors
    /// Those of [`check_accessed`] and [`new`](Self::new), and too many CTAs.
    pub fn of<C: Clone>(
        kernel: &(impl Kernel<C> + ?Sized),
        call: &C,
        alignment: impl Fn(&Extents) -> u64,
        ctas: impl Into<u64>,
    ) -> Result<Option<Self>, LaunchError> {
        check_accessed(kernel, call, alignment)?;
        let ctas = ctas.into();
        let grid = Self::grid(ctas)?;
        (ctas > 0).then(|| Self::new(grid, |visit| kernel.visit(&mut call.clone(), visit))).transpose()
    }

    /// A grid of CTAs along x.
    pub(crate) fn grid(ctas: u64) -> Result<Grid, LaunchError> {
        const MOST: u32 = i32::MAX as u32;
        match u32::try_from(ctas) {
            Ok(ctas) if ctas <= MOST => Ok(Grid { ctas: [ctas, 1, 1] }),
            _ => Err(LaunchError::Grid { ctas, most: MOST }),
        }
    }
}

/// Fills in the parameters of a launch.
#[derive(Default)]
struct Filling {
    /// The memory so far.
    memory: Named,
    arguments: Vec<Argument>,
    places: Vec<Place>,
    /// Why there is no launch.
    fault: Option<String>,
}

impl Visit for Filling {
    fn memory(&mut self, memory: Memory<'_>) {
        self.memory.memory(memory);
    }

    fn sees_parameters(&self) -> bool {
        true
    }

    fn parameter(&mut self, Parameter { name, kind, value }: Parameter) {
        let (argument, within) = match (kind, value) {
            (Kind::Address { .. }, Some(unread)) => (Some(unread), None),
            (Kind::Address { within, beyond }, None) => match self.memory.last(within) {
                Some((_, 0)) => (Some(0u64.into()), None),
                Some((which, address)) => (Some(address.wrapping_add(beyond).into()), Some((which, beyond))),
                None => (None, None),
            },
            (Kind::TensorMap { within }, Some(map)) => {
                let begin = map.clone().address().map_or(0, |address| *address);
                match self.memory.last(within) {
                    // Nothing is read through it.
                    _ if begin == 0 => (Some(map), None),
                    Some((which, address)) => (Some(map), Some((which, begin.wrapping_sub(address)))),
                    None => (None, None),
                }
            }
            (Kind::Number(_) | Kind::Flag | Kind::Signed, number) => (number, None),
            (Kind::TensorMap { .. }, None) => (None, None),
        };
        if let Some(argument) = argument {
            self.arguments.push(argument);
        } else {
            self.fault.get_or_insert(match kind {
                Kind::Address { within, .. } => {
                    format!("the parameter `{name}` is an address in {within}, which was not visited before it")
                }
                Kind::TensorMap { within } => format!(
                    "the parameter `{name}` is a tensor map of {within}: its value, and a visit of {within} before it, were needed"
                ),
                Kind::Number(_) | Kind::Flag | Kind::Signed => format!("the parameter `{name}` has no value"),
            });
        }
        self.places.push(Place { name, within });
    }
}

#[cfg(test)]
mod tests {
    use collective::Format;
    use collective::operands::{Contents, Extents};
    use ptx::abi::{Promotion, TensorElement, TensorMap, TensorSwizzle};

    use super::*;

    const GRID: Grid = Grid { ctas: [1; 3] };

    fn memory(visit: &mut dyn Visit, name: &'static str, mut address: u64) {
        let (extents, contents) = (Extents::line(32, 64), Contents::Output(Format::F32));
        visit.memory(Memory { name, address: &mut address, extents, contents, writes: true });
    }

    fn map(address: u64) -> TensorMap {
        TensorMap {
            element: TensorElement::F32,
            address,
            dims: vec![64],
            strides: Vec::new(),
            box_dims: vec![64],
            swizzle: TensorSwizzle::None,
            promotion: Promotion::default(),
            reach: None,
        }
    }

    /// Arguments have the order of their statements, and each says where its address is.
    #[test]
    fn arguments_are_what_the_interface_says() {
        let launch = Launch::new(GRID, |visit| {
            memory(visit, "X", 0x1000);
            memory(visit, "Y", 0x1000);
            memory(visit, "nothing", 0);
            visit.number("rows", Some(3u32));
            visit.tensor_map("y_map", "Y", Some(map(0x0f00)));
            visit.address_in("x_end", "X", 0x100);
            visit.address_in("none", "nothing", 0x100);
            visit.flag("whole", Some(true));
        });
        let launch = launch.expect("all have values");
        let wanted: [Argument; 5] =
            [3u32.into(), map(0x0f00).into(), 0x1100u64.into(), 0u64.into(), 1u32.into()];
        assert_eq!(launch.arguments, wanted);
        let places: Vec<_> = launch.places.iter().map(|place| (place.name, place.within)).collect();
        assert_eq!(
            places,
            [
                ("rows", None),
                ("y_map", Some((("Y", 0), 0u64.wrapping_sub(0x100)))),
                ("x_end", Some((("X", 0), 0x100))),
                ("none", None),
                ("whole", None),
            ]
        );
    }

    #[test]
    fn what_has_no_value_is_refused() {
        type States = fn(&mut dyn Visit);
        for (states, name) in [
            (|visit| visit.number::<u32>("rows", None)) as States,
            |visit| visit.flag("whole", None),
            |visit| {
                memory(visit, "X", 0x1000);
                visit.tensor_map("x_map", "X", None);
            },
            |visit| visit.tensor_map("x_map", "X", Some(map(0x1000))),
            |visit| visit.address("x", "X"),
        ]
        .into_iter()
        .zip(["rows", "whole", "x_map", "x_map", "x"])
        {
            let error = Launch::new(GRID, states).expect_err("no value").to_string();
            assert!(error.contains(&format!("`{name}`")), "{error}");
        }
    }
}
