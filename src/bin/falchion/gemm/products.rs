//! The arguments for several GEMMs in one launch.

use collective::WeightsSpec;
use falchion::verify::Format;
use falchion::verify::product::of_kernels;
use kernel::{GemmProblem, Types};

use super::GemmArgs;
use crate::Failure;
use crate::bench::suites::Group;
use crate::several::SeveralArgs;
use crate::weights::FewBits;

impl GemmArgs {
    /// The GEMMs that `--group` names.
    pub(super) fn records(&self) -> Result<Vec<GemmProblem>, Failure> {
        let records: Vec<GemmProblem> = self
            .group
            .iter()
            .filter_map(|group| match group {
                Group::Product(problem) => Some(*problem),
                Group::Weights(_) => None,
            })
            .collect();
        if records.is_empty() && self.group.len() < 2 {
            return Ok(records);
        }
        let given = [
            ("--group with a group size", records.len() < self.group.len()),
            ("--a", self.a.is_some()),
            ("--c", self.c.is_some()),
            ("--out", self.out.is_some()),
            ("--m", self.m.is_some()),
            ("--n", self.n.is_some()),
            ("--k", self.k.is_some()),
            ("--batch", self.batch.is_some()),
            ("--rows", self.rows.is_some()),
            ("--room", self.room.is_some()),
            ("--k-groups", self.k_groups.is_some()),
            ("--dtype-b", self.dtype_b.is_some()),
            ("--out-dtype", self.out_dtype.is_some()),
            ("--scale-a", self.scale_a.is_some()),
            ("--scale-b", self.scale_b.is_some()),
        ];
        match given.into_iter().find(|(_, given)| *given) {
            Some((flag, _)) => Err(Failure::usage(format!(
                "--group MxNxK cannot be used with {flag}: each GEMM has its own extents and random matrices"
            ))),
            None => Ok(records),
        }
    }

    /// Runs several GEMMs in one launch.
    pub(super) fn several(
        &self,
        format: Format,
        few_bits: Option<FewBits>,
        records: &[GemmProblem],
    ) -> Result<(), Failure> {
        if few_bits.is_none() && (self.dtype_b.is_some() || self.out_dtype.is_some()) {
            let flag = if self.dtype_b.is_some() { "--dtype-b" } else { "--out-dtype" };
            return Err(Failure::usage(format!(
                "{flag} cannot be used with several GEMMs, except for weights in few bits"
            )));
        }
        let types = match few_bits {
            None => self.sparse(Types::of(of_kernels(format)))?,
            Some(few_bits) => {
                self.sparse(Types::of(of_kernels(format)))?;
                let group = self.group_size().unwrap_or(0);
                let spec = WeightsSpec { group, ..WeightsSpec::of(few_bits.code) };
                few_bits.types(spec, self.out_dtype.as_deref())?
            }
        };
        let or_default = |extent: Option<u32>| extent.unwrap_or(256);
        let problem = GemmProblem { m: or_default(self.m), n: or_default(self.n), k: or_default(self.k) };
        let count = self.batch.unwrap_or(1).into();
        let all = self.rows.as_ref().map(|rows| rows.iter().map(|&rows| u64::from(rows)).sum::<u64>());
        let count = self.rows.as_ref().map_or(count, |rows| rows.len() as u64);
        let m = match self.room {
            Some(room) => u64::from(room) * count,
            None => all.unwrap_or(u64::from(problem.m) * count),
        };
        if m > i32::MAX as u64 {
            return Err(Failure::usage(format!(
                "{m} rows in all are too many: at most 2^31 - 1 are possible"
            )));
        }
        let lengths = self.k_groups.as_deref();
        let all = lengths.unwrap_or_default().iter().map(|&k| u64::from(k)).sum::<u64>();
        if all > i32::MAX as u64 {
            return Err(Failure::usage(format!(
                "--k-groups has {all} in all: at most 2^31 - 1 are possible"
            )));
        }
        let of_groups = records.iter().map(|group| u128::from(group.n) * u128::from(group.k)).sum::<u128>();
        let of_groups = of_groups.max(u128::from(problem.n) * u128::from(all));
        let operands = of_groups.max(u128::from(problem.n) * u128::from(problem.k) * u128::from(count));
        if operands > 1 << 32 {
            return Err(Failure::usage(format!(
                "{operands} elements of B are too many to compare: at most 2^32 are possible"
            )));
        }
        let rows = self.rows.as_deref();
        let config = self.config();
        let (config, factors) = (config.as_deref(), [self.alpha(), self.beta()]);
        let (batch, engine, seed, repeat) = (self.batch, self.engine, self.seed, self.repeat);
        let room = self.room;
        if let Some((&most, room)) =
            rows.and_then(|rows| rows.iter().max()).zip(room).filter(|(most, room)| *most > room)
        {
            return Err(Failure::usage(format!(
                "--rows has {most}, and --room is {room}: a group has at most --room rows"
            )));
        }
        SeveralArgs {
            batch,
            rows,
            room,
            along_k: lengths,
            records,
            problem,
            types,
            config,
            factors,
            engine,
            seed,
            repeat,
        }
        .run()
    }
}
