//! Operands of instructions.

use super::Parser;
use crate::read::error::Read;
use crate::read::lex::{Kind, Number};
use crate::read::syntax::{Base, Operand, OperandKind};

impl<'t> Parser<'_, 't> {
    pub(super) fn operand(&mut self) -> Read<Operand<'t>> {
        let token = self.peek();
        let kind = match token.kind {
            Kind::Word => {
                self.next();
                self.named(token.text)?
            }
            Kind::Number(_) | Kind::Sign('-') => OperandKind::Number(self.number("a number")?),
            Kind::Sign('!') => {
                self.next();
                OperandKind::Not(self.name("a predicate")?.text)
            }
            Kind::Sign('[') => {
                self.next();
                self.address()?
            }
            Kind::Sign('{') => {
                self.next();
                OperandKind::Vector(self.inside(|parser| parser.operands('}'))?)
            }
            Kind::Sign('(') => {
                self.next();
                OperandKind::List(self.inside(|parser| parser.operands(')'))?)
            }
            Kind::Dot(_) | Kind::Text(_) | Kind::Sign(_) | Kind::End => {
                return self.unexpected("an operand was needed");
            }
        };
        Ok(Operand { at: token.at, kind })
    }

    /// Operands with commas between them, until `end`.
    fn operands(&mut self, end: char) -> Read<Vec<Operand<'t>>> {
        let mut operands = Vec::new();
        while !self.takes(end) {
            if !operands.is_empty() {
                self.expect(',', "between operands")?;
            }
            operands.push(self.operand()?);
        }
        Ok(operands)
    }

    /// What follows a name.
    fn named(&mut self, name: &'t str) -> Read<OperandKind<'t>> {
        if let Kind::Dot(component) = self.peek().kind {
            self.next();
            return Ok(OperandKind::Component(name, component));
        }
        if self.takes('|') {
            return Ok(OperandKind::Pair(name, self.name("a second result")?.text));
        }
        match self.offset()? {
            0 => Ok(OperandKind::Name(name)),
            offset => Ok(OperandKind::Offset(name, offset)),
        }
    }

    /// What follows `[`.
    fn address(&mut self) -> Read<OperandKind<'t>> {
        let token = self.peek();
        let base = if token.kind == Kind::Word {
            self.next();
            Base::Name(token.text)
        } else {
            Base::Number(self.unsigned("a register, a variable or a number")?)
        };
        let offset = self.offset()?;
        let coordinates = if self.takes(',') {
            self.expect('{', "the coordinates of a tensor")?;
            Some(self.inside(|parser| parser.operands('}'))?)
        } else {
            None
        };
        self.expect(']', "the end of an address")?;
        Ok(OperandKind::Address { base, offset, coordinates })
    }

    /// Numbers that are added to an address; 0 if there are none.
    pub(super) fn offset(&mut self) -> Read<i64> {
        let mut sum = 0i64;
        while matches!(self.peek().kind, Kind::Sign('+' | '-')) {
            let plus = self.next();
            let minus = plus.kind == Kind::Sign('-');
            let negative = self.takes('-') != minus;
            let value = self.unsigned("an offset in bytes")?;
            let term = i64::try_from(value).ok().map(|value| if negative { -value } else { value });
            match term.and_then(|term| sum.checked_add(term)) {
                Some(total) => sum = total,
                None => return plus.at.wrong("the offset does not fit 64 bits"),
            }
        }
        Ok(sum)
    }

    /// A number with or without a minus before it.
    pub(super) fn number(&mut self, what: &str) -> Read<Number> {
        let negative = self.takes('-');
        let Kind::Number(number) = self.peek().kind else {
            return self.unexpected(&format!("{what} was needed"));
        };
        self.next();
        Ok(match number {
            Number::Integer(value, _) => Number::Integer(value, negative),
            Number::Single(bits) => Number::Single(if negative { bits ^ 1 << 31 } else { bits }),
            Number::Double(bits) => Number::Double(if negative { bits ^ 1 << 63 } else { bits }),
        })
    }
}
