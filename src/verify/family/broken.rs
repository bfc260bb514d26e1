//! Checks of programs that may be broken: each run begins with the same memory, in an emulator of its own.

use emulator::{Failure, Memory, Options, Program};
use kernel::operands::{Contents, Extents, Memory as Accessed, Places, Visit};
use kernel::{Buffer, Filled, Kernel, Launch};

use super::placed::{Becomes, Placed};
use super::{Checks, FamilyError, filled};

/// A launch in the emulator, and how often a run repeats it: results are restored before each launch, and a workspace is what the
/// launch before has left.
#[derive(Clone, Debug)]
pub struct Relaunched {
    /// The launch.
    pub launch: Launch,
    /// Number of launches.
    pub times: u32,
}

impl Checks<Relaunched> {
    /// A call on random memory, with the words of its tables, and `resident` clusters at a time. With memory that is left to the
    /// next launch, as a workspace, it is launched twice. `call` may have any addresses. `None`: there is nothing to compute.
    ///
    /// # Errors
    /// The call is illegal.
    pub fn emulated<C: Clone>(
        kernel: &(impl Kernel<C> + ?Sized),
        (call, words): (&C, &[u32]),
        resident: u32,
    ) -> Result<Option<Self>, FamilyError> {
        let (mut call, mut memory, mut lent) = (call.clone(), Memory::new(), false);
        let visits = &mut |call: &mut C, places: &mut Places<'_>| {
            places.words = words.to_vec();
            kernel.visit(call, places);
            let Buffer { mut address, bytes } = Buffer::new(0, kernel.workspace(call, resident));
            lent = bytes > 0;
            if lent {
                let (name, address_of) = ("a workspace that is lent", &mut address);
                let (extents, contents) = (Extents::line(8, bytes as u64), Contents::Workspace);
                places.memory(Accessed { name, address: address_of, extents, contents, writes: true });
                kernel.lend_workspace(call, Some(Buffer { address, bytes }));
            }
        };
        let pieces = filled(&mut call, visits, &mut |bytes| memory.allocate(bytes), 1);
        let Some(launch) = kernel.launch(&call, resident)? else { return Ok(None) };
        let mut all = Self::placed(Relaunched { launch, times: 1 }, pieces);
        if let Some(own) = all.pieces.last_mut().filter(|_| lent) {
            own.becomes = Becomes::Own;
        }
        let keeps = all.pieces.iter().any(|of| matches!(of.becomes, Becomes::Left | Becomes::Own));
        all.call.times = if keeps { 2 } else { 1 };
        Ok(Some(all))
    }

    /// A launch on these pieces of memory, which an emulator has allocated first, in this order.
    pub fn placed(launch: Relaunched, pieces: Vec<Filled>) -> Self {
        let pieces = pieces.into_iter().map(|before| {
            let Filled { piece, bytes, .. } = &before;
            let (begin, bytes) = (piece.begin(), bytes.len() + piece.begin());
            Placed::new(Buffer { address: piece.address - begin as u64, bytes }, before)
        });
        Self {
            call: launch,
            pieces: pieces.collect(),
            empty: Vec::new(),
            results: Vec::new(),
            sample: (0, 0),
        }
    }

    /// The same after a change of the launch and of what is in memory before it.
    #[must_use]
    pub fn changed(mut self, change: impl FnOnce(&mut Relaunched, &mut [&mut Vec<u8>])) -> Self {
        let mut bytes: Vec<_> = self.pieces.iter_mut().map(|of| &mut of.before.bytes).collect();
        change(&mut self.call, &mut bytes);
        self
    }

    /// The same if what is left in the kernel's workspace is compared, too.
    #[must_use]
    pub fn with_workspace(mut self) -> Self {
        let own = self.pieces.iter_mut().filter(|of| of.becomes == Becomes::Own);
        own.for_each(|of| of.becomes = Becomes::Left);
        self
    }

    /// Launches a program. Returns the number of instructions of the last launch, or how a launch failed, and what all launches have
    /// written.
    pub fn run(&self, program: &Program, options: &Options<'_>) -> (Result<u64, Failure>, Vec<u8>) {
        let mut written = Vec::new();
        let ran = self.run_all(program, options, &mut written);
        (ran, written)
    }

    fn run_all(
        &self,
        program: &Program,
        options: &Options<'_>,
        written: &mut Vec<u8>,
    ) -> Result<u64, Failure> {
        let mut memory = Memory::new();
        // It returns the same addresses for the same sizes in the same order.
        for of in &self.pieces {
            memory.upload(&of.bytes());
        }
        let Relaunched { launch, times } = &self.call;
        let mut instructions = 0;
        for time in 0..*times {
            for of in self.pieces.iter().filter(|of| time > 0 && of.becomes == Becomes::Compared) {
                memory.write(of.before.piece.address, &of.before.bytes)?;
            }
            instructions = program.launch(launch.grid, &launch.arguments, &memory, options)?.instructions;
            let compared = |of: &&Placed| matches!(of.becomes, Becomes::Compared | Becomes::Left);
            for of in self.pieces.iter().filter(compared) {
                written.extend(memory.read(of.before.piece.address, of.before.bytes.len())?);
            }
        }
        Ok(instructions)
    }
}
