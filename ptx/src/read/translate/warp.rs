//! Instructions of a warp: votes, matches, reductions, shuffles.

use super::super::error::Read;
use super::super::syntax::OperandKind;
use super::Translator;
use super::form::Form;
use super::integers::is_all;
use super::operands::unsigned;
use crate::inst::{Inst, Operand, ReduceOp, Reg, Shuffle, Vote, WarpInst};
use crate::types::Type;

impl<'t> Translator<'_, 't> {
    pub(super) fn warp(&mut self, name: &str, form: &mut Form<'_, 't>) -> Read<()> {
        form.ignore(&["sync"]);
        match name {
            "shfl" => self.shuffle(form),
            "vote" => self.vote(form),
            "match" => self.matched(form),
            "redux" => self.reduced(form),
            "elect" => self.elect(form),
            _ => {
                form.last_type()?;
                let dst = self.dst(form, Type::U32)?;
                self.emit(Inst::Warp(WarpInst::ActiveMask { dst }));
                Ok(())
            }
        }
    }

    fn elect(&mut self, form: &mut Form<'_, 't>) -> Read<()> {
        let word = form.operand()?;
        let OperandKind::Pair(lane, dst) = word.kind else {
            return word.at.wrong("two results were needed: `d|p`");
        };
        let dst = self.register(dst, word.at)?;
        self.fits(dst, Type::Pred, word.at)?;
        let all = is_all(form.peek());
        let members = self.src(form, Type::U32)?;
        if lane == "_" && all {
            self.emit(Inst::Elect { dst });
            return Ok(());
        }
        let lane = if lane == "_" { None } else { Some(self.register(lane, word.at)?) };
        if let Some(lane) = lane {
            self.fits(lane, Type::U32, word.at)?;
        }
        self.emit(Inst::Warp(WarpInst::Elect { dst, lane, members }));
        Ok(())
    }

    fn shuffle(&mut self, form: &mut Form<'_, 't>) -> Read<()> {
        let modes = [
            ("up", Shuffle::Up),
            ("down", Shuffle::Down),
            ("bfly", Shuffle::Butterfly),
            ("idx", Shuffle::Index),
        ];
        let mode = form.need("a mode", &modes)?;
        form.last_type()?;
        let (dst, found) = self.dst_pair(form, Type::B32)?;
        let src = self.src(form, Type::B32)?;
        let lane = self.src(form, Type::U32)?;
        let usual = if mode == Shuffle::Up { 0 } else { 31 };
        let clamp = self.constant(form, "the segments of a shuffle", usual)?;
        let all = is_all(form.peek());
        let members = self.src(form, Type::U32)?;
        self.emit(match (mode, lane, found, clamp) {
            (Shuffle::Index, _, None, 31) if all => Inst::ShuffleIndex { dst, src, lane },
            (Shuffle::Butterfly, Operand::Imm(mask @ 0..32), None, 31) if all => {
                Inst::ShuffleXor { dst, src, mask: u32::try_from(mask).unwrap_or(0) }
            }
            _ => {
                let width = 32u32.saturating_sub(clamp >> 8 & 31);
                if clamp & 31 != usual || !width.is_power_of_two() {
                    return form.wrong(format!(
                        "segments of {clamp:#x}: those of 1 to 32 lanes, a power of two, are read"
                    ));
                }
                Inst::Warp(WarpInst::Shuffle { mode, dst, found, src, lane, width, members })
            }
        });
        Ok(())
    }

    fn vote(&mut self, form: &mut Form<'_, 't>) -> Read<()> {
        let votes = [
            ("all", Some(Vote::All)),
            ("any", Some(Vote::Any)),
            ("uni", Some(Vote::Uniform)),
            ("ballot", None),
        ];
        let vote = form.need("a vote", &votes)?;
        let ty = form.last_type()?;
        let dst = self.dst(form, if vote.is_some() { Type::Pred } else { ty })?;
        let src = self.src(form, Type::Pred)?;
        let members = self.src(form, Type::U32)?;
        self.emit(Inst::Warp(match vote {
            Some(vote) => WarpInst::Vote { vote, dst, src, members },
            None => WarpInst::Ballot { dst, src, members },
        }));
        Ok(())
    }

    fn matched(&mut self, form: &mut Form<'_, 't>) -> Read<()> {
        let all = form.need("a kind of match", &[("all", true), ("any", false)])?;
        let ty = unsigned(form.last_type()?);
        let (dst, yes) = self.dst_pair(form, Type::U32)?;
        let src = self.src(form, ty)?;
        let members = self.src(form, Type::U32)?;
        let yes: Reg = match yes {
            Some(yes) => yes,
            None => self.names.fresh(Type::Pred)?,
        };
        self.emit(Inst::Warp(if all {
            let all = yes;
            WarpInst::MatchAll { ty, dst, all, src, members }
        } else {
            WarpInst::MatchAny { ty, dst, src, members }
        }));
        Ok(())
    }

    fn reduced(&mut self, form: &mut Form<'_, 't>) -> Read<()> {
        let ops = [
            ("add", ReduceOp::Add),
            ("min", ReduceOp::Min),
            ("max", ReduceOp::Max),
            ("and", ReduceOp::And),
            ("or", ReduceOp::Or),
            ("xor", ReduceOp::Xor),
        ];
        let op = form.need("an operation", &ops)?;
        let ty = form.last_type()?;
        let ty = if ty.is_untyped() { unsigned(ty) } else { ty };
        let dst = self.dst(form, ty)?;
        let src = self.src(form, ty)?;
        let members = self.src(form, Type::U32)?;
        self.emit(Inst::Warp(WarpInst::Reduce { op, ty, dst, src, members }));
        Ok(())
    }
}
