//! Launches of a program, whole or broken, on memory that is the same each time.

use emulator::{Failure, Memory, Options, Program};
use kernel::operands::{Contents, Fill, Piece, Places};
use kernel::{Buffer, Kernel, Launch};

use super::FamilyError;

/// A launch with memory of its own in the emulator, for programs that may be broken: each run begins with the same memory.
#[derive(Clone, Debug)]
pub struct Launches {
    launch: Launch,
    memory: Vec<(Vec<u8>, Use)>,
    launches: u32,
}

/// What becomes of a piece of memory from launch to launch, and whether it is a part of what a run has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// It is read.
    Read,
    /// It is a result: compared, and restored before a further launch.
    Result,
    /// It is compared, and a further launch finds it as the launch before has left it.
    Left,
    /// It is left as it is, and not compared.
    Own,
}

impl Launches {
    /// A launch whose arguments have the addresses of this memory, which is allocated in this order; so many times in a row.
    pub const fn new(launch: Launch, memory: Vec<(Vec<u8>, Use)>, launches: u32) -> Self {
        Self { launch, memory, launches }
    }

    /// A call on random memory, with the words of its tables, and `resident` clusters at a time. With memory that is left to the
    /// next launch, as a workspace, it is launched twice. `call` may have any addresses. `None`: there is nothing to compute.
    ///
    /// # Errors
    /// The call is illegal.
    pub fn of<C: Clone>(
        kernel: &(impl Kernel<C> + ?Sized),
        (call, words): (&C, &[u32]),
        resident: u32,
    ) -> Result<Option<Self>, FamilyError> {
        let (mut call, mut memory) = (call.clone(), Memory::new());
        let mut allocate = |bytes| memory.allocate(bytes);
        let mut places = Places::new(&mut allocate).with(words.to_vec());
        kernel.visit(&mut call, &mut places);
        let pieces = places.pieces;
        let mut fill = Fill::new(1);
        let of = |piece: &Piece| match (piece.writes, piece.contents) {
            (false, _) => Use::Read,
            (true, Contents::Workspace) => Use::Left,
            (true, _) => Use::Result,
        };
        let filled = |piece: &Piece| {
            let mut bytes = fill.bytes(piece);
            // A table that nobody described.
            bytes.resize(piece.bytes, 0);
            (bytes, of(piece))
        };
        let mut all: Vec<_> = pieces.iter().map(filled).collect();
        let Buffer { bytes, .. } = Buffer::new(0, kernel.workspace(&call, resident));
        if bytes > 0 {
            let address = memory.allocate(bytes);
            kernel.lend_workspace(&mut call, Some(Buffer { address, bytes }));
            all.push((vec![0; bytes], Use::Own));
        }
        let keeps = all.iter().any(|(_, of)| matches!(of, Use::Left | Use::Own));
        let launch = kernel.launch(&call, resident)?;
        Ok(launch.map(|launch| Self::new(launch, all, if keeps { 2 } else { 1 })))
    }

    /// How often it is launched.
    pub const fn launches(&self) -> u32 {
        self.launches
    }

    /// The same after a change of the launch, of what is in memory before it, and of the number of launches.
    #[must_use]
    pub fn changed(mut self, change: impl FnOnce(&mut Launch, &mut [(Vec<u8>, Use)], &mut u32)) -> Self {
        change(&mut self.launch, &mut self.memory, &mut self.launches);
        self
    }

    /// Launches a program. Returns the number of instructions of the last launch, or how a launch failed, and what all launches have
    /// written.
    pub fn run(&self, program: &Program, options: &Options<'_>) -> (Result<u64, Failure>, Vec<u8>) {
        let mut written = Vec::new();
        let ran = self.launched(program, options, &mut written);
        (ran, written)
    }

    fn launched(
        &self,
        program: &Program,
        options: &Options<'_>,
        written: &mut Vec<u8>,
    ) -> Result<u64, Failure> {
        let mut memory = Memory::new();
        // It returns the same addresses for the same sizes in the same order.
        let addresses: Vec<u64> = self.memory.iter().map(|(bytes, _)| memory.upload(bytes)).collect();
        let mut instructions = 0;
        for launch in 0..self.launches {
            let pieces = || self.memory.iter().zip(&addresses);
            for ((bytes, _), &address) in pieces().filter(|((_, of), _)| launch > 0 && *of == Use::Result) {
                memory.write(address, bytes)?;
            }
            let report = program.launch(self.launch.grid, &self.launch.arguments, &memory, options)?;
            instructions = report.instructions;
            for ((bytes, of), &address) in pieces() {
                if matches!(of, Use::Result | Use::Left) {
                    written.extend(memory.read(address, bytes.len())?);
                }
            }
        }
        Ok(instructions)
    }
}
