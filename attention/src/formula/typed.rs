//! Expressions with their types: whole numbers, real numbers and truths.

use collective::expression::{Expression, Is, Operator};
use collective::{Elementary, Format, FormulaError};

use super::array::Array;
use super::{Place, Scoring};

/// A formula, or a part of one.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Typed {
    Whole(Whole),
    Number(Number),
    Truth(Truth),
}

/// A whole number.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Whole {
    Constant(i32),
    Variable(Variable),
    Element(Element),
    Of(Arithmetic, Box<[Whole; 2]>),
    Where(Box<Truth>, Box<[Whole; 2]>),
}

/// What whole numbers begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variable {
    Query,
    Key,
    Head,
    Sequence,
    Queries,
    Keys,
}

/// A real number.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Number {
    Product,
    Constant(f64),
    Real(Box<Whole>),
    Element(Element),
    Of(Arithmetic, Box<[Number; 2]>),
    Absolute(Box<Number>),
    Function(Elementary, Box<Number>),
    Where(Box<Truth>, Box<[Number; 2]>),
}

/// Arithmetic of two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
    /// Of whole numbers alone.
    Remainder,
    Least,
    Most,
}

/// A truth.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Truth {
    Whole(Comparison, Box<[Whole; 2]>),
    /// `a < b`.
    Less(Box<[Number; 2]>),
    All(Box<[Truth; 2]>),
    Any(Box<[Truth; 2]>),
    Not(Box<Truth>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    Less,
    AtMost,
    Equal,
}

/// An element of an array: its number among the arrays, and where it is.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Element {
    pub(super) array: usize,
    pub(super) index: Vec<Whole>,
}

/// Most parts of a formula.
const MOST: usize = 10_000;

/// Most dimensions of an array.
const DIMENSIONS: usize = 4;

/// Largest constant among whole numbers.
const LARGEST: f64 = (1 << 30) as f64;

/// Formats of arrays of real and of whole numbers.
const REAL: [Format; 5] = [Format::F32, Format::Bf16, Format::F16, Format::E4m3, Format::E5m2];
const WHOLE: [Format; 3] = [Format::S32, Format::S8, Format::U8];

/// Whether elements are whole numbers.
pub(crate) fn is_whole(format: Format) -> bool {
    WHOLE.contains(&format)
}

/// The types of an expression, and its arrays.
pub(super) fn of_text(
    expr: &Expression<Scoring>,
    text: &str,
    is_mask: bool,
) -> Result<(Typed, Vec<Array>), FormulaError> {
    let mut types = Types { text, is_mask, arrays: Vec::new(), bound: Vec::new(), parts: 0 };
    let root = types.typed(expr)?;
    Ok((root, types.arrays))
}

struct Types<'a> {
    text: &'a str,
    is_mask: bool,
    arrays: Vec<Array>,
    bound: Vec<(String, Typed, usize)>,
    parts: usize,
}

impl Types<'_> {
    fn error<T>(&self, expr: &Expression<Scoring>, reason: impl Into<String>) -> Result<T, FormulaError> {
        Err(FormulaError { text: self.text.to_owned(), column: expr.at, reason: reason.into() })
    }

    fn typed(&mut self, expr: &Expression<Scoring>) -> Result<Typed, FormulaError> {
        self.counted(expr, 1)?;
        match &expr.is {
            &Is::Number(number) if number.fract() == 0.0 && number.abs() <= LARGEST => {
                Ok(Typed::Whole(Whole::Constant(number as i32)))
            }
            // What the device has of it.
            &Is::Number(number) => Ok(Typed::Number(Number::Constant(f64::from(number as f32)))),
            Is::Name(name) => self.name(expr, name),
            Is::Place(place) => self.place(expr, place),
            Is::Call { name, given } => self.call(expr, name, given),
            Is::Negative(of) => match self.typed(of)? {
                Typed::Whole(Whole::Constant(constant)) => Ok(Typed::Whole(Whole::Constant(-constant))),
                Typed::Whole(of) => Ok(whole(Arithmetic::Subtract, [Whole::Constant(0), of])),
                Typed::Number(Number::Constant(constant)) => Ok(Typed::Number(Number::Constant(-constant))),
                Typed::Number(of) => Ok(number(Arithmetic::Multiply, [of, Number::Constant(-1.0)])),
                Typed::Truth(_) => self.error(expr, "`-` of a truth, a number was needed"),
            },
            Is::Not(of) => Ok(Typed::Truth(not(self.truth(of)?))),
            Is::Binary { operator, of } => self.binary(expr, *operator, of),
            Is::Let { name, value, body } => {
                let before = self.parts;
                let value = self.typed(value)?;
                self.bound.push((name.clone(), value, self.parts - before));
                let body = self.typed(body);
                self.bound.pop();
                body
            }
        }
    }

    /// Counts parts: values with names are parts wherever they stand.
    fn counted(&mut self, expr: &Expression<Scoring>, parts: usize) -> Result<(), FormulaError> {
        self.parts += parts;
        if self.parts > MOST {
            return self.error(expr, format!("the formula has more than {MOST} parts"));
        }
        Ok(())
    }

    fn name(&mut self, expr: &Expression<Scoring>, name: &str) -> Result<Typed, FormulaError> {
        if let Some((_, value, parts)) = self.bound.iter().rev().find(|(bound, ..)| bound == name) {
            let (value, parts) = (value.clone(), *parts);
            self.counted(expr, parts)?;
            return Ok(value);
        }
        let variable = match name {
            "x" if self.is_mask => return self.error(expr, "a mask does not depend on `x`, the product"),
            "x" => return Ok(Typed::Number(Number::Product)),
            "inf" => return Ok(Typed::Number(Number::Constant(f64::INFINITY))),
            "q" => Variable::Query,
            "k" => Variable::Key,
            "h" => Variable::Head,
            "b" => Variable::Sequence,
            "queries" => Variable::Queries,
            "keys" => Variable::Keys,
            _ => {
                let product = if self.is_mask { "" } else { "x, " };
                let names = format!("{product}q, k, h, b, queries, keys and inf");
                return self.error(expr, format!("`{name}` is no name of scores: there are {names}"));
            }
        };
        Ok(Typed::Whole(Whole::Variable(variable)))
    }

    /// An element of an array.
    fn place(&mut self, expr: &Expression<Scoring>, place: &Place) -> Result<Typed, FormulaError> {
        let format = place.format.unwrap_or(Format::F32);
        if !REAL.contains(&format) && !is_whole(format) {
            let all: Vec<_> = REAL.into_iter().chain(WHOLE).map(Format::name).collect();
            return self.error(
                expr,
                format!("arrays of {format} are not read: one of {} was needed", all.join(", ")),
            );
        }
        if place.index.len() > DIMENSIONS {
            let dimensions = place.index.len();
            return self.error(
                expr,
                format!("`{}` has {dimensions} dimensions, {DIMENSIONS} are legal", place.name),
            );
        }
        let mut index = Vec::new();
        for at in &place.index {
            index.push(match self.typed(at)? {
                Typed::Whole(whole) => whole,
                Typed::Number(_) | Typed::Truth(_) => {
                    return self.error(at, "elements are found by whole numbers");
                }
            });
        }
        let array = self.array(expr, &place.name, format, &index)?;
        let element = Element { array, index };
        Ok(if is_whole(format) {
            Typed::Whole(Whole::Element(element))
        } else {
            Typed::Number(Number::Element(element))
        })
    }

    /// The number of an array, which is a new one unless its name is known.
    fn array(
        &mut self,
        expr: &Expression<Scoring>,
        name: &str,
        format: Format,
        index: &[Whole],
    ) -> Result<usize, FormulaError> {
        let variable =
            |whole: &Whole| if let Whole::Variable(variable) = whole { Some(*variable) } else { None };
        let found = self.arrays.iter().position(|array| array.name == name);
        let Some(at) = found else {
            let kept = |text: String| &*Box::leak(text.into_boxed_str());
            let each =
                |what: &str| (0..index.len()).map(|i| kept(format!("array_{name}_{what}{i}"))).collect();
            self.arrays.push(Array {
                name: kept(name.to_owned()),
                memory: kept(format!("the array {name}")),
                address: kept(format!("array_{name}")),
                sizes: each("size"),
                strides: each("stride"),
                format,
                index: index.iter().map(variable).collect(),
                found: index.iter().map(|whole| vec![whole.clone()]).collect(),
            });
            return Ok(self.arrays.len() - 1);
        };
        let array = &mut self.arrays[at];
        if array.format != format || array.index.len() != index.len() {
            let (format, dimensions) = (array.format, array.index.len());
            let reason = format!(
                "`{name}` has {dimensions} dimensions of {format} where it stands first, the same were needed"
            );
            return self.error(expr, reason);
        }
        for (i, whole) in index.iter().enumerate() {
            if array.index[i] != variable(whole) {
                array.index[i] = None;
            }
            array.found[i].push(whole.clone());
        }
        Ok(at)
    }

    fn truth(&mut self, expr: &Expression<Scoring>) -> Result<Truth, FormulaError> {
        match self.typed(expr)? {
            Typed::Truth(truth) => Ok(truth),
            Typed::Whole(_) | Typed::Number(_) => {
                self.error(expr, "this is a number, a truth was needed, as q>=k")
            }
        }
    }

    fn number(&mut self, expr: &Expression<Scoring>) -> Result<Number, FormulaError> {
        match self.typed(expr)? {
            Typed::Whole(whole) => Ok(real(whole)),
            Typed::Number(number) => Ok(number),
            Typed::Truth(_) => self.error(expr, "this is a truth, a number was needed: where(c,1,0) is one"),
        }
    }

    /// Two numbers of one kind.
    fn pair(&mut self, a: &Expression<Scoring>, b: &Expression<Scoring>) -> Result<Pair, FormulaError> {
        match (self.typed(a)?, self.typed(b)?) {
            (Typed::Whole(a), Typed::Whole(b)) => Ok(Pair::Wholes([a, b])),
            (Typed::Truth(_), _) => self.error(a, "this is a truth, a number was needed"),
            (_, Typed::Truth(_)) => self.error(b, "this is a truth, a number was needed"),
            (first, second) => Ok(Pair::Numbers([first, second].map(|of| match of {
                Typed::Whole(whole) => real(whole),
                Typed::Number(number) => number,
                Typed::Truth(_) => Number::Constant(0.0),
            }))),
        }
    }

    fn binary(
        &mut self,
        expr: &Expression<Scoring>,
        operator: Operator,
        of: &[Expression<Scoring>; 2],
    ) -> Result<Typed, FormulaError> {
        let [a, b] = of;
        let arithmetic = match operator {
            Operator::Or | Operator::And => {
                let both = Box::new([self.truth(a)?, self.truth(b)?]);
                let is_and = operator == Operator::And;
                return Ok(Typed::Truth(if is_and { Truth::All(both) } else { Truth::Any(both) }));
            }
            Operator::Add => Arithmetic::Add,
            Operator::Subtract => Arithmetic::Subtract,
            Operator::Multiply => Arithmetic::Multiply,
            Operator::Divide => Arithmetic::Divide,
            Operator::Remainder => Arithmetic::Remainder,
            Operator::Equal
            | Operator::Differs
            | Operator::Less
            | Operator::AtMost
            | Operator::More
            | Operator::AtLeast => return self.compared(expr, operator, of),
        };
        match self.pair(a, b)? {
            Pair::Wholes([_, Whole::Constant(0)])
                if matches!(arithmetic, Arithmetic::Divide | Arithmetic::Remainder) =>
            {
                self.error(b, "a whole number is divided by 0")
            }
            Pair::Wholes(both) => Ok(whole(arithmetic, both)),
            Pair::Numbers(_) if arithmetic == Arithmetic::Remainder => {
                self.error(expr, "`%` of real numbers, whole ones were needed")
            }
            Pair::Numbers(both) => Ok(number(arithmetic, both)),
        }
    }

    fn compared(
        &mut self,
        expr: &Expression<Scoring>,
        operator: Operator,
        [a, b]: &[Expression<Scoring>; 2],
    ) -> Result<Typed, FormulaError> {
        let equal = matches!(operator, Operator::Equal | Operator::Differs);
        // `a > b` is `b < a`, `a >= b` of real numbers is `!(a < b)`.
        let swaps = matches!(operator, Operator::More | Operator::AtLeast);
        let strict = matches!(operator, Operator::Less | Operator::More);
        let truth = match self.pair(a, b)? {
            Pair::Wholes([a, b]) => {
                let both = Box::new(if swaps { [b, a] } else { [a, b] });
                match (equal, strict) {
                    (false, true) => Truth::Whole(Comparison::Less, both),
                    (false, false) => Truth::Whole(Comparison::AtMost, both),
                    (true, _) if operator == Operator::Differs => not(Truth::Whole(Comparison::Equal, both)),
                    (true, _) => Truth::Whole(Comparison::Equal, both),
                }
            }
            Pair::Numbers(_) if equal => {
                return self.error(expr, "real numbers are compared by <, <=, > and >=");
            }
            // `a <= b` is `!(b < a)`.
            Pair::Numbers([a, b]) => match (strict, swaps) {
                (true, false) => Truth::Less(Box::new([a, b])),
                (true, true) => Truth::Less(Box::new([b, a])),
                (false, false) => not(Truth::Less(Box::new([b, a]))),
                (false, true) => not(Truth::Less(Box::new([a, b]))),
            },
        };
        Ok(Typed::Truth(truth))
    }

    fn call(
        &mut self,
        expr: &Expression<Scoring>,
        name: &str,
        given: &[Expression<Scoring>],
    ) -> Result<Typed, FormulaError> {
        let needed = match name {
            "where" | "clamp" => 3,
            "min" | "max" | "softcap" => 2,
            "abs" | "real" => 1,
            _ if elementary(name).is_some() => 1,
            _ => {
                let all: Vec<_> = FUNCTIONS.iter().map(|(name, _)| *name).collect();
                let known = format!("where, min, max, clamp, abs, real, softcap, {}", all.join(", "));
                return self.error(expr, format!("`{name}` is no function of scores: there are {known}"));
            }
        };
        if given.len() != needed {
            let found = given.len();
            return self.error(expr, format!("`{name}` has {found} arguments, {needed} were needed"));
        }
        match (name, given) {
            ("where", [c, a, b]) => {
                let c = Box::new(self.truth(c)?);
                Ok(match self.pair(a, b)? {
                    Pair::Wholes(both) => Typed::Whole(Whole::Where(c, Box::new(both))),
                    Pair::Numbers(both) => Typed::Number(Number::Where(c, Box::new(both))),
                })
            }
            ("clamp", [a, low, high]) => {
                let above = self.extreme(Arithmetic::Most, a, low)?;
                match (above, self.typed(high)?) {
                    (Typed::Whole(a), Typed::Whole(high)) => Ok(whole(Arithmetic::Least, [a, high])),
                    (_, Typed::Truth(_)) => self.error(high, "this is a truth, a number was needed"),
                    (a, high) => {
                        let both = [a, high]
                            .map(|of| if let Typed::Whole(of) = of { Typed::Number(real(of)) } else { of });
                        match both {
                            [Typed::Number(a), Typed::Number(high)] => {
                                Ok(number(Arithmetic::Least, [a, high]))
                            }
                            _ => self.error(expr, "numbers were needed"),
                        }
                    }
                }
            }
            ("min", [a, b]) => self.extreme(Arithmetic::Least, a, b),
            ("max", [a, b]) => self.extreme(Arithmetic::Most, a, b),
            ("abs", [a]) => match self.typed(a)? {
                Typed::Whole(a) => {
                    let negative = Whole::Of(Arithmetic::Subtract, Box::new([Whole::Constant(0), a.clone()]));
                    Ok(whole(Arithmetic::Most, [a, negative]))
                }
                Typed::Number(a) => Ok(Typed::Number(Number::Absolute(Box::new(a)))),
                Typed::Truth(_) => self.error(a, "this is a truth, a number was needed"),
            },
            ("real", [a]) => Ok(Typed::Number(self.number(a)?)),
            ("softcap", [a, cap]) => {
                let (a, cap) = (self.number(a)?, self.number(cap)?);
                let part = Number::Of(Arithmetic::Divide, Box::new([a, cap.clone()]));
                Ok(number(Arithmetic::Multiply, [Number::Function(Elementary::Tanh, Box::new(part)), cap]))
            }
            (_, [a]) => match elementary(name) {
                Some(function) => Ok(Typed::Number(Number::Function(function, Box::new(self.number(a)?)))),
                None => self.error(expr, format!("`{name}` is no function of scores")),
            },
            _ => self.error(expr, format!("`{name}` is no function of scores")),
        }
    }

    fn extreme(
        &mut self,
        which: Arithmetic,
        a: &Expression<Scoring>,
        b: &Expression<Scoring>,
    ) -> Result<Typed, FormulaError> {
        Ok(match self.pair(a, b)? {
            Pair::Wholes(both) => whole(which, both),
            Pair::Numbers(both) => number(which, both),
        })
    }
}

enum Pair {
    Wholes([Whole; 2]),
    Numbers([Number; 2]),
}

/// The functions of a real number.
const FUNCTIONS: [(&str, Elementary); 11] = [
    ("tanh", Elementary::Tanh),
    ("exp", Elementary::Exp),
    ("exp2", Elementary::Exp2),
    ("log", Elementary::Ln),
    ("log2", Elementary::Log2),
    ("sqrt", Elementary::Sqrt),
    ("rsqrt", Elementary::Rsqrt),
    ("sigmoid", Elementary::Sigmoid),
    ("erf", Elementary::Erf),
    ("sin", Elementary::Sin),
    ("cos", Elementary::Cos),
];

fn elementary(name: &str) -> Option<Elementary> {
    FUNCTIONS.iter().find(|(known, _)| *known == name).map(|(_, function)| *function)
}

fn whole(which: Arithmetic, both: [Whole; 2]) -> Typed {
    Typed::Whole(Whole::Of(which, Box::new(both)))
}

fn number(which: Arithmetic, both: [Number; 2]) -> Typed {
    Typed::Number(Number::Of(which, Box::new(both)))
}

/// A whole number as a real one.
fn real(whole: Whole) -> Number {
    if let Whole::Constant(constant) = whole {
        return Number::Constant(constant.into());
    }
    Number::Real(Box::new(whole))
}

/// The contrary, where comparisons have one.
fn not(truth: Truth) -> Truth {
    match truth {
        Truth::Whole(Comparison::Less, both) => {
            let [a, b] = *both;
            Truth::Whole(Comparison::AtMost, Box::new([b, a]))
        }
        Truth::Whole(Comparison::AtMost, both) => {
            let [a, b] = *both;
            Truth::Whole(Comparison::Less, Box::new([b, a]))
        }
        Truth::All(both) => Truth::Any(Box::new((*both).map(not))),
        Truth::Any(both) => Truth::All(Box::new((*both).map(not))),
        Truth::Not(truth) => *truth,
        Truth::Whole(Comparison::Equal, _) | Truth::Less(_) => Truth::Not(Box::new(truth)),
    }
}
