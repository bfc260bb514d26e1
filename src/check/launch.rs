//! What a kernel is launched with: memory, arguments, grid.

use super::Element;

/// A launch: kernels that run one after the other on the same memory, and what they must write.
///
/// [`Launch::read`] makes one of a text; [`Launch::load`] fetches the files that it names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Launch {
    /// The kernels, in the order in which they run.
    pub kernels: Vec<Kernel>,
    /// Global memory.
    pub buffers: Vec<Buffer>,
    /// How often the kernels are launched on the same memory: from the second time on they find what they have left.
    pub launches: u32,
    /// Whether `elect.sync` may choose any lane, as the PTX ISA says. If not, it chooses the lowest one, as all cards so far do, and as
    /// CUTLASS relies on.
    pub any_elected: bool,
    /// Findings that are expected.
    pub suppressions: Vec<super::Suppression>,
}

/// A kernel of a launch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Kernel {
    /// The name of the PTX file, in reports too.
    pub file: String,
    /// The PTX; empty until it is [loaded](Launch::load).
    pub text: String,
    /// The kernel's name. `None`: the only one of its module.
    pub entry: Option<String>,
    /// CTAs along x, y and z.
    pub grid: [u32; 3],
    /// Threads per CTA along x, y and z. `None`: what the PTX requires.
    pub threads: Option<[u32; 3]>,
    /// CTAs per cluster along x, y and z. `None`: what the PTX requires, or 1.
    pub cluster: Option<[u32; 3]>,
    /// Bytes of dynamic shared memory per CTA.
    pub shared: u32,
    /// Whether it may begin before the kernels before it have ended (programmatic dependent launch): it must then not access global
    /// memory before `griddepcontrol.wait`.
    pub dependent: bool,
    /// The arguments, in the order of the parameters.
    pub arguments: Vec<Argument>,
}

/// A piece of global memory. Nothing else is near it: an access beyond it is found.
#[derive(Clone, Debug, PartialEq)]
pub struct Buffer {
    /// Its name, for arguments and reports.
    pub name: String,
    /// What it holds.
    pub element: Element,
    /// Its extents in elements, outermost first: for reports. Their product is the number of elements.
    pub shape: Vec<u64>,
    /// Alignment of its address in bytes, a power of two. The address has no larger one.
    pub align: u64,
    /// What it holds before the first launch.
    pub content: Content,
    /// Addresses of buffers in it, each with its offset in bytes.
    pub pointers: Vec<(u64, Pointer)>,
    /// Tensor maps in it.
    pub maps: Vec<Map>,
    /// Whether it gets its content again before each launch.
    pub restore: bool,
    /// What it must hold after each launch.
    pub expect: Expect,
}

/// What memory holds before the first launch.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// Nothing: a read of what no kernel wrote is found.
    Unwritten,
    /// Zeros.
    Zeros,
    /// Numbers that a seed draws from a range; integers, the upper end included.
    Random {
        /// The seed.
        seed: u64,
        /// The smallest number.
        low: f64,
        /// The largest number.
        high: f64,
    },
    /// `from`, `from + step`, and so on, rounded to elements.
    Range {
        /// The first number.
        from: f64,
        /// From one number to the next.
        step: f64,
    },
    /// These bytes.
    Data(Data),
}

/// Bytes, or where they are.
#[derive(Clone, Debug, PartialEq)]
pub enum Data {
    /// The bytes of a file from an offset in bytes on.
    File {
        /// The file.
        file: String,
        /// The offset.
        at: u64,
    },
    /// The bytes.
    Bytes(Vec<u8>),
}

/// What a buffer must hold after each launch.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Expect {
    /// Anything; but warn if it depends on the schedule.
    #[default]
    Same,
    /// Anything: it is scratch.
    Anything,
    /// What it held before.
    Unchanged,
    /// These elements, within a tolerance.
    Values(Want),
}

/// Wanted elements: right is `|got - want| <= atol + rtol * |want|`, computed in f64.
#[derive(Clone, Debug, PartialEq)]
pub struct Want {
    /// The wanted elements, one for each of the buffer.
    pub data: Data,
    /// Their type.
    pub element: Element,
    /// The relative tolerance.
    pub rtol: f64,
    /// The absolute tolerance.
    pub atol: f64,
}

/// An address in a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pointer {
    /// The buffer's name; `None` for address 0.
    pub buffer: Option<String>,
    /// Bytes from its beginning.
    pub offset: u64,
}

/// An argument of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub enum Argument {
    /// An address, or null.
    Pointer(Pointer),
    /// The bytes of a number.
    Scalar(Vec<u8>),
    /// A tensor map.
    Map(Map),
    /// A structure.
    Structure {
        /// Its bytes.
        data: Data,
        /// The number of bytes.
        bytes: u64,
        /// Addresses in it, each with its offset in bytes.
        pointers: Vec<(u64, Pointer)>,
        /// Tensor maps in it.
        maps: Vec<Map>,
    },
}

/// A tensor map, as `cuTensorMapEncodeTiled` or `cuTensorMapEncodeIm2col` takes it: all lists are innermost dimension first.
#[derive(Clone, Debug, PartialEq)]
pub struct Map {
    /// Offset in the structure or the buffer that it is in, in bytes.
    pub at: u64,
    /// Where the tensor begins.
    pub tensor: Pointer,
    /// What is encoded. Its address is filled in later.
    pub kind: MapKind,
}

/// The two kinds of tensor maps.
#[derive(Clone, Debug, PartialEq)]
pub enum MapKind {
    /// A tiled map.
    Tiled(ptx::abi::TensorMap),
    /// An im2col map.
    Im2col(ptx::abi::Im2colMap),
}

impl Buffer {
    /// A buffer of unwritten bytes.
    pub fn new(name: impl Into<String>, element: Element, count: u64) -> Self {
        Self {
            name: name.into(),
            element,
            shape: vec![count],
            align: 256,
            content: Content::Unwritten,
            pointers: Vec::new(),
            maps: Vec::new(),
            restore: false,
            expect: Expect::Same,
        }
    }

    /// The number of elements.
    pub fn count(&self) -> u64 {
        self.shape.iter().fold(1, |count: u64, &extent| count.saturating_mul(extent))
    }

    /// The number of bytes.
    pub fn bytes(&self) -> u64 {
        self.count().saturating_mul(self.element.bytes() as u64)
    }

    /// The place of an element, as it is indexed: `[3, 17]`.
    pub(super) fn index(&self, mut element: u64) -> String {
        let mut place = Vec::new();
        for &extent in self.shape.iter().rev() {
            place.push((element % extent.max(1)).to_string());
            element /= extent.max(1);
        }
        place.reverse();
        format!("[{}]", place.join(", "))
    }
}

impl Default for Pointer {
    /// The null pointer.
    fn default() -> Self {
        Self { buffer: None, offset: 0 }
    }
}

/// Fetches the bytes of a file that a launch names.
pub type Fetch<'a> = dyn Fn(&str) -> Result<Vec<u8>, String> + 'a;

impl Launch {
    /// Fetches every file that the launch names: PTX, contents, wanted elements and structures.
    ///
    /// # Errors
    /// A file that is not there, or is too short; PTX that is no text.
    pub fn load(&mut self, fetch: &Fetch<'_>) -> Result<(), super::DescriptionError> {
        for kernel in self.kernels.iter_mut().filter(|kernel| kernel.text.is_empty()) {
            let bytes = fetch(&kernel.file).map_err(|why| wrong(&kernel.file, why))?;
            kernel.text =
                String::from_utf8(bytes).map_err(|_| wrong(&kernel.file, "it is no text in UTF-8".into()))?;
        }
        for buffer in &mut self.buffers {
            let (bytes, count) = (buffer.bytes(), buffer.count());
            if let Content::Data(data) = &mut buffer.content {
                data.load((&format!("buffer `{}`", buffer.name), bytes), fetch)?;
            }
            if let Expect::Values(want) = &mut buffer.expect {
                let bytes = count.saturating_mul(want.element.bytes() as u64);
                want.data.load((&format!("want of buffer `{}`", buffer.name), bytes), fetch)?;
            }
        }
        for kernel in &mut self.kernels {
            for (number, argument) in kernel.arguments.iter_mut().enumerate() {
                if let Argument::Structure { data, bytes, .. } = argument {
                    data.load((&format!("argument {number}"), *bytes), fetch)?;
                }
            }
        }
        Ok(())
    }
}

impl Data {
    /// Fetches the file.
    fn load(
        &mut self,
        (whose, bytes): (&str, u64),
        fetch: &Fetch<'_>,
    ) -> Result<(), super::DescriptionError> {
        if let Self::File { file, at } = self {
            let all = fetch(file).map_err(|why| wrong(whose, format!("{file}: {why}")))?;
            let end = at.checked_add(bytes).and_then(|end| usize::try_from(end).ok());
            let start = usize::try_from(*at).unwrap_or(usize::MAX);
            let Some(part) = end.and_then(|end| all.get(start..end)) else {
                let length = all.len();
                return Err(wrong(
                    whose,
                    format!("{file} has {length} B, {bytes} B from byte {at} on were needed"),
                ));
            };
            *self = Self::Bytes(part.to_vec());
        }
        let given = self.bytes()?.len() as u64;
        if given != bytes {
            return Err(wrong(whose, format!("{given} B were given, {bytes} B were needed")));
        }
        Ok(())
    }

    /// The bytes.
    ///
    /// # Errors
    /// They have not been loaded.
    pub fn bytes(&self) -> Result<&[u8], super::DescriptionError> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            Self::File { file, .. } => Err(wrong(file, "it has not been loaded".into())),
        }
    }
}

/// An error of a part of a launch.
pub(super) fn wrong(what: &str, why: String) -> super::DescriptionError {
    super::DescriptionError { message: format!("{what}: {why}") }
}
