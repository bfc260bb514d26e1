//! Global memory of a launch, and the arguments that point into it.

use std::collections::BTreeMap;

use emulator::Memory;
use ptx::abi::{self, Structure, TENSOR_MAP_BYTES};
use ptx::{Function, Param, ParamKind};

use super::CheckError;
use super::launch::{Argument, Buffer, Content, Data, Expect, Launch, Map, MapKind, Pointer};

/// Most bytes of all buffers.
const MOST: u64 = 1 << 33;

/// A launch with an address for each buffer. The addresses are the same in each memory that it makes.
pub(super) struct Placed<'l> {
    launch: &'l Launch,
    buffers: Vec<Place>,
    /// What each buffer holds at first; `None` for unwritten bytes.
    contents: Vec<Option<Vec<u8>>>,
    variables: Vec<Variable>,
    /// The addresses of each kernel's variables.
    addresses: Vec<Vec<u64>>,
    /// The arguments of each kernel.
    pub(super) arguments: Vec<Vec<abi::Argument>>,
}

/// Where a buffer is: inside of an allocation, of which nothing else may be written.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// The allocation.
    base: u64,
    all: usize,
    /// The buffer.
    address: u64,
    bytes: usize,
}

/// A variable of a module, which all kernels of the module share.
#[derive(Clone)]
struct Variable {
    place: Place,
    content: Vec<u8>,
}

impl Place {
    /// Allocates memory. An address of an alignment below the 256 of every allocation has no larger one.
    fn allocate(memory: &mut Memory, bytes: u64, align: u64) -> Self {
        let whole = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let slack = if align < 256 { align } else { align - 256 };
        let all = whole(bytes.saturating_add(slack));
        let base = memory.allocate(all);
        Self { base, all, address: base, bytes: whole(bytes) }.aligned(base, align)
    }

    /// The same in an allocation that begins elsewhere, at a multiple of 256.
    fn aligned(self, base: u64, align: u64) -> Self {
        let address = if align < 256 { base + align } else { base.next_multiple_of(align) };
        Self { base, address, ..self }
    }
}

impl<'l> Placed<'l> {
    pub(super) fn new(launch: &'l Launch, functions: &[Function]) -> Result<Self, CheckError> {
        let bytes = launch.buffers.iter().fold(0, |sum: u64, buffer| sum.saturating_add(buffer.bytes()));
        if bytes > MOST {
            return Err(CheckError::Memory { bytes, most: MOST });
        }
        let (memory, buffers, variables, places) = Self::allocated(launch, functions);
        drop(memory);
        let (contents, arguments) = Default::default();
        Self { launch, buffers, contents, variables, addresses: places, arguments }.filled(functions)
    }

    /// Fills in what depends on addresses: contents and arguments.
    fn filled(mut self, functions: &[Function]) -> Result<Self, CheckError> {
        let launch = self.launch;
        self.contents = launch.buffers.iter().map(|buffer| self.content(buffer)).collect::<Result<_, _>>()?;
        let kernels = launch.kernels.iter().zip(functions).zip(&self.addresses);
        let lowered = kernels
            .map(|((kernel, function), addresses)| self.lowered(&kernel.arguments, function, addresses));
        self.arguments = lowered.collect::<Result<_, _>>()?;
        Ok(self)
    }

    /// The same launch in other memory: `allocate` says where an allocation of so many bytes begins, at a multiple of 256.
    pub(super) fn moved(
        &self,
        functions: &[Function],
        allocate: &mut dyn FnMut(usize) -> Result<u64, CheckError>,
    ) -> Result<Self, CheckError> {
        let mut moved = Self {
            launch: self.launch,
            buffers: self.buffers.clone(),
            contents: Vec::new(),
            variables: self.variables.clone(),
            addresses: self.addresses.clone(),
            arguments: Vec::new(),
        };
        for (place, buffer) in moved.buffers.iter_mut().zip(&self.launch.buffers) {
            *place = place.aligned(allocate(place.all)?, buffer.align);
        }
        let mut known = BTreeMap::new();
        for Variable { place, .. } in &mut moved.variables {
            let before = place.address;
            *place = place.aligned(allocate(place.all)?, 256);
            known.insert(before, place.address);
        }
        for address in moved.addresses.iter_mut().flatten() {
            *address = known.get(address).copied().unwrap_or(*address);
        }
        moved.filled(functions)
    }

    /// Each allocation as it is before the first launch: where it begins, and its bytes. What nobody has written has every bit set.
    pub(super) fn images(&self) -> impl Iterator<Item = (u64, Vec<u8>)> + '_ {
        let image = |place: &Place, content: Option<&[u8]>| {
            let mut bytes = vec![0xFF; place.all];
            if let Some(content) = content {
                let start = (place.address - place.base) as usize;
                bytes[start..start + content.len()].copy_from_slice(content);
            }
            (place.base, bytes)
        };
        let buffers = self.buffers.iter().zip(&self.contents);
        let buffers = buffers.map(move |(place, content)| image(place, content.as_deref()));
        buffers
            .chain(self.variables.iter().map(move |Variable { place, content }| image(place, Some(content))))
    }

    /// The bytes of a buffer among those of its allocation.
    pub(super) fn part(&self, number: usize) -> core::ops::Range<usize> {
        let Place { base, address, bytes, .. } = self.buffers[number];
        let start = (address - base) as usize;
        start..start + bytes
    }

    /// The address in other memory of an address in this one.
    pub(super) fn address_in(&self, other: &Self) -> impl Fn(u64) -> Option<u64> + use<> {
        let places = |placed: &Self| -> Vec<Place> {
            placed
                .buffers
                .iter()
                .chain(placed.variables.iter().map(|variable| &variable.place))
                .copied()
                .collect()
        };
        let both: Vec<(Place, Place)> = places(self).into_iter().zip(places(other)).collect();
        move |address| {
            let inside =
                |place: &Place| address >= place.address && address - place.address <= place.bytes as u64;
            let (own, other) = both.iter().find(|(own, _)| inside(own))?;
            Some(address - own.address + other.address)
        }
    }

    /// Where a buffer begins.
    pub(super) fn buffer(&self, number: usize) -> u64 {
        self.buffers[number].address
    }

    /// Memory, the places of the buffers and the variables, and the addresses of each kernel's variables.
    fn allocated(
        launch: &Launch,
        functions: &[Function],
    ) -> (Memory, Vec<Place>, Vec<Variable>, Vec<Vec<u64>>) {
        let mut memory = Memory::new();
        let place = |buffer: &Buffer| Place::allocate(&mut memory, buffer.bytes(), buffer.align);
        let buffers = launch.buffers.iter().map(place).collect();
        let (mut known, mut variables) = (BTreeMap::new(), Vec::new());
        let mut addresses = Vec::new();
        for (kernel, function) in launch.kernels.iter().zip(functions) {
            let of = |variable: &ptx::Variable| {
                *known.entry((kernel.file.clone(), variable.name.to_string())).or_insert_with(|| {
                    let align = u64::from(variable.alignment.max(1)).next_power_of_two().max(256);
                    let place = Place::allocate(&mut memory, variable.content.len() as u64, align);
                    variables.push(Variable { place, content: variable.content.clone() });
                    place.address
                })
            };
            addresses.push(function.variables.iter().map(of).collect());
        }
        (memory, buffers, variables, addresses)
    }

    /// Memory as it is before the first launch.
    pub(super) fn memory(&self) -> Result<Memory, CheckError> {
        let mut memory = Memory::new();
        let all = self.buffers.iter().chain(self.variables.iter().map(|variable| &variable.place));
        for place in all {
            let base = memory.allocate(place.all);
            debug_assert_eq!(base, place.base, "allocations repeat");
        }
        for (place, content) in self.buffers.iter().zip(&self.contents) {
            if let Some(content) = content {
                memory.write(place.address, content)?;
            }
        }
        for Variable { place, content } in &self.variables {
            memory.write(place.address, content)?;
        }
        Ok(memory)
    }

    /// Writes again what buffers hold before each launch. Results that nothing was in before become bytes that are none, so that a
    /// launch which writes nothing is found.
    pub(super) fn restore(&self, memory: &mut Memory) -> Result<(), CheckError> {
        for ((buffer, place), content) in self.launch.buffers.iter().zip(&self.buffers).zip(&self.contents) {
            match (content, &buffer.expect) {
                (Some(content), _) if buffer.restore => memory.write(place.address, content)?,
                (None, Expect::Values(_)) => memory.write(place.address, &vec![0xFF; place.bytes])?,
                _ => {}
            }
        }
        Ok(())
    }

    /// The bytes of a buffer, and whether each element was written.
    pub(super) fn held(&self, memory: &Memory, number: usize) -> Result<Held, CheckError> {
        let (place, buffer) = (self.buffers[number], &self.launch.buffers[number]);
        let bytes = memory.read(place.address, place.bytes)?;
        let all = memory.written(place.address, place.bytes);
        let size = buffer.element.bytes();
        let written = |element: u64| {
            let (address, element) = (place.address + element * size as u64, element);
            all || element < buffer.count() && memory.written(address, size)
        };
        let missing = if all { None } else { (0..buffer.count()).find(|&element| !written(element)) };
        Ok(Held { bytes, missing })
    }

    /// What a buffer held at first.
    pub(super) fn before(&self, number: usize) -> Option<&[u8]> {
        self.contents[number].as_deref()
    }

    /// The offset from its beginning of the first byte next to a buffer that was written.
    pub(super) fn outside(&self, memory: &Memory, number: usize) -> Option<i64> {
        let Place { base, all, address, bytes } = self.buffers[number];
        let (start, end) = (address - base, address - base + bytes as u64);
        let next_to = (0..all as u64).filter(|offset| !(start..end).contains(offset));
        let first = next_to.map(|offset| base + offset).find(|&at| memory.written(at, 1))?;
        Some(first.cast_signed() - address.cast_signed())
    }

    /// What an address belongs to: a buffer, and the offset of its byte.
    pub(super) fn owner(&self, address: u64) -> Option<(&str, u64)> {
        let inside = |place: &Place| address >= place.address && address < place.address + place.bytes as u64;
        let (buffer, place) =
            self.launch.buffers.iter().zip(&self.buffers).find(|(_, place)| inside(place))?;
        Some((&buffer.name, address - place.address))
    }

    /// The last buffer that begins at an address or before it, and the byte of it that the address would be.
    pub(super) fn nearest(&self, address: u64) -> Option<(&str, u64)> {
        let all = self.launch.buffers.iter().zip(&self.buffers);
        let before = all.filter(|(_, place)| place.address <= address);
        let (buffer, place) = before.max_by_key(|(_, place)| place.address)?;
        Some((&buffer.name, address - place.address))
    }

    /// What a buffer holds at first.
    fn content(&self, buffer: &Buffer) -> Result<Option<Vec<u8>>, CheckError> {
        let (element, count) = (buffer.element, buffer.count());
        let mut bytes = match &buffer.content {
            Content::Unwritten if buffer.pointers.is_empty() && buffer.maps.is_empty() => return Ok(None),
            Content::Unwritten | Content::Zeros => vec![0; usize::try_from(buffer.bytes()).unwrap_or(0)],
            Content::Random { seed, low, high } => {
                let mut random = fastrand::Rng::with_seed(*seed);
                // Integers up to the largest.
                let span = high - low + if element.is_integer() { 1.0 } else { 0.0 };
                let mut draw = || (low + random.f64() * span).min(*high);
                (0..count).flat_map(|_| element.nearest(draw())).collect()
            }
            Content::Range { from, step } => {
                (0..count).flat_map(|index| element.nearest(from + step * index as f64)).collect()
            }
            Content::Data(data) => data.bytes()?.to_vec(),
        };
        self.fill(&mut bytes, &buffer.pointers, &buffer.maps, &format!("buffer `{}`", buffer.name))?;
        Ok(Some(bytes))
    }

    /// Writes addresses and encoded tensor maps into bytes.
    fn fill(
        &self,
        bytes: &mut [u8],
        pointers: &[(u64, Pointer)],
        maps: &[Map],
        whose: &str,
    ) -> Result<(), CheckError> {
        for (at, pointer) in pointers {
            put(bytes, *at, &self.address(pointer)?.to_le_bytes(), whose)?;
        }
        for map in maps {
            let mut memory = Memory::new();
            let made = match self.map(map)? {
                MapKind::Tiled(tiled) => memory.upload_tensor_map(&tiled)?,
                MapKind::Im2col(pixels) => memory.upload_im2col_map(&pixels)?,
            };
            put(bytes, map.at, &memory.read(made, TENSOR_MAP_BYTES)?, whose)?;
        }
        Ok(())
    }

    fn address(&self, pointer: &Pointer) -> Result<u64, CheckError> {
        let Some(name) = &pointer.buffer else { return Ok(pointer.offset) };
        let number = self.launch.buffers.iter().position(|buffer| buffer.name == *name);
        let place = number.and_then(|number| self.buffers.get(number));
        let place = place.ok_or_else(|| CheckError::Argument(format!("there is no buffer `{name}`")))?;
        let address = place.address.checked_add(pointer.offset);
        address.ok_or_else(|| {
            CheckError::Argument(format!("offset {} in buffer `{name}` is no address", pointer.offset))
        })
    }

    /// A tensor map with its address.
    fn map(&self, map: &Map) -> Result<MapKind, CheckError> {
        let address = self.address(&map.tensor)?;
        let mut kind = map.kind.clone();
        match &mut kind {
            MapKind::Tiled(tiled) => tiled.address = address,
            MapKind::Im2col(pixels) => pixels.address = address,
        }
        Ok(kind)
    }

    /// The arguments of a kernel, those of its module's variables included.
    fn lowered(
        &self,
        arguments: &[Argument],
        function: &Function,
        variables: &[u64],
    ) -> Result<Vec<abi::Argument>, CheckError> {
        let needed = function.params.len() - variables.len();
        if arguments.len() != needed {
            let params = function.params.iter().take(needed);
            let listed: Vec<String> =
                params.map(|param| format!("{} ({})", param.name, told(param.kind))).collect();
            return Err(CheckError::Argument(format!(
                "`{}` has {needed} parameters, {} arguments were given; they are: {}",
                function.name,
                arguments.len(),
                listed.join(", ")
            )));
        }
        let given = arguments.iter().zip(&function.params).enumerate();
        let given = given.map(|(number, (argument, param))| {
            let whose = format!("argument {number}, parameter `{}`", param.name);
            fit(&whose, param, self.structure(argument, &whose)?)
        });
        let variables = variables.iter().map(|&address| Ok(address.into()));
        given.chain(variables).collect()
    }

    /// The bytes of an argument, and the tensor maps in it.
    fn structure(&self, argument: &Argument, whose: &str) -> Result<Structure, CheckError> {
        let (bytes, pointers, maps): (_, &[_], &[_]) = match argument {
            Argument::Pointer(pointer) => (self.address(pointer)?.to_le_bytes().to_vec(), &[], &[]),
            Argument::Scalar(bytes) => (bytes.clone(), &[], &[]),
            Argument::Map(map) => (vec![0; TENSOR_MAP_BYTES], &[], core::slice::from_ref(map)),
            Argument::Structure { data, pointers, maps, .. } => (data.bytes()?.to_vec(), pointers, maps),
        };
        let mut structure = Structure { bytes, ..Structure::default() };
        self.fill(&mut structure.bytes, pointers, &[], whose)?;
        for map in maps {
            let at = usize::try_from(map.at).unwrap_or(usize::MAX);
            match self.map(map)? {
                MapKind::Tiled(tiled) => structure.tiled.push((at, tiled)),
                MapKind::Im2col(pixels) => structure.im2col.push((at, pixels)),
            }
        }
        Ok(structure)
    }
}

/// What a buffer holds after a launch.
pub(super) struct Held {
    pub(super) bytes: Vec<u8>,
    /// The first element that was never written.
    pub(super) missing: Option<u64>,
}

fn put(bytes: &mut [u8], at: u64, what: &[u8], whose: &str) -> Result<(), CheckError> {
    let (size, start) = (bytes.len(), usize::try_from(at).unwrap_or(usize::MAX));
    let place = start.checked_add(what.len()).and_then(|end| bytes.get_mut(start..end));
    let place = place.ok_or_else(|| {
        CheckError::Argument(format!("{whose}: {} B at byte {at} are beyond its {size} B", what.len()))
    })?;
    place.copy_from_slice(what);
    Ok(())
}

/// An argument as the parameter takes it.
fn fit(whose: &str, param: &Param, given: Structure) -> Result<abi::Argument, CheckError> {
    let (needed, bytes, has_maps) = (param.kind.bytes(), given.bytes.len(), given.maps().next().is_some());
    if bytes != needed {
        let kind = told(param.kind);
        return Err(CheckError::Argument(format!("{whose}: {bytes} B were given, it is {kind}")));
    }
    match param.kind {
        ParamKind::Scalar(_) if has_maps => {
            Err(CheckError::Argument(format!("{whose}: a tensor map was given, it is {}", told(param.kind))))
        }
        ParamKind::Scalar(ty) => {
            let mut bits = [0; 8];
            bits.iter_mut().zip(&given.bytes).for_each(|(to, from)| *to = *from);
            Ok(abi::Argument::Scalar(ty, u64::from_le_bytes(bits)))
        }
        ParamKind::Bytes { .. } => Ok(abi::Argument::Bytes(given)),
        ParamKind::TensorMap => {
            let Structure { tiled, im2col, .. } = given;
            let tiled = tiled.into_iter().map(|(at, map)| (at, abi::Argument::TensorMap(map)));
            let im2col = im2col.into_iter().map(|(at, map)| (at, abi::Argument::Im2colMap(map)));
            match tiled.chain(im2col).next() {
                Some((0, map)) => Ok(map),
                _ => Err(CheckError::Argument(format!("{whose}: it is a tensor map, which was not given"))),
            }
        }
    }
}

/// A kind of parameter in words.
fn told(kind: ParamKind) -> String {
    match kind {
        ParamKind::Scalar(ty) => format!(".{ty}, {} B", ty.bytes()),
        ParamKind::TensorMap => format!("a tensor map, {TENSOR_MAP_BYTES} B"),
        ParamKind::Bytes { bytes, .. } => format!("a structure of {bytes} B"),
    }
}

/// Whether nothing is compared with what a buffer holds.
pub(super) fn is_free(buffer: &Buffer) -> bool {
    matches!(buffer.expect, Expect::Same)
}

impl Launch {
    /// Whether every file that it names has been fetched.
    pub(super) fn is_loaded(&self) -> bool {
        let there = |data: &Data| matches!(data, Data::Bytes(_));
        self.buffers.iter().all(|buffer| match (&buffer.content, &buffer.expect) {
            (Content::Data(data), _) if !there(data) => false,
            (_, Expect::Values(want)) => there(&want.data),
            _ => true,
        })
    }
}
