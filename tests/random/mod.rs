//! Formulas drawn at random: trees of every node that a formula can have.

use falchion::collective::Arithmetic;
use falchion::kernel::KernelSpec;

/// What the formulas of a family may have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Family {
    /// The gated pair that each has.
    pub(crate) gated: Option<&'static str>,
    /// Softmax of rows.
    pub(crate) surveys: bool,
    /// No ordered reductions: the family is for transposed stores.
    pub(crate) unordered: bool,
    /// What all is computed in.
    pub(crate) arithmetic: Arithmetic,
}

const PLAIN: Family = Family { gated: None, surveys: false, unordered: false, arithmetic: Arithmetic::F32 };

/// Formulas in integers, and in double precision.
#[allow(dead_code, reason = "not every test has them")]
pub(crate) const EXACT: [Family; 2] =
    [Family { arithmetic: Arithmetic::S32, ..PLAIN }, Family { arithmetic: Arithmetic::F64, ..PLAIN }];

pub(crate) const FAMILIES: [Family; 8] = [
    PLAIN,
    PLAIN,
    Family { surveys: true, ..PLAIN },
    Family { gated: Some("gated(silu_fast,"), ..PLAIN },
    Family { gated: Some("gated8(max,"), ..PLAIN },
    Family { gated: Some("gated16(relu,"), ..PLAIN },
    Family { gated: Some("gated_split(leaky_relu,"), ..PLAIN },
    Family { unordered: true, ..PLAIN },
];

impl Family {
    /// Draws a formula, at most `depth` deep.
    pub(crate) fn draw(self, random: &mut fastrand::Rng, depth: u32) -> String {
        let place = Place {
            depth,
            pure: false,
            bindings: Vec::new(),
            gated: self.gated,
            surveys: self.surveys,
            unordered: self.unordered,
            leads: true,
            uses: false,
        };
        let mut draw = Draw { random, names: 0, c: false, arithmetic: self.arithmetic };
        let text = draw.node(&place);
        if self.arithmetic == Arithmetic::S32 { format!("s32({text})") } else { text }
    }
}

/// A kernel with a formula. `spec` are its other words.
pub(crate) fn kernel(spec: &str, formula: &str) -> Result<KernelSpec, String> {
    KernelSpec::parse(&format!("{spec} epilogue=\"{formula}\"")).map_err(|error| error.to_string())
}

/// The nodes that are allowed at a place of a tree.
#[derive(Clone)]
struct Place {
    /// Number of levels below.
    depth: u32,
    /// No node that writes.
    pure: bool,
    /// The names of enclosing bindings.
    bindings: Vec<String>,
    /// The gated pair between this place and its accumulators, if one is still to come; it halves the columns.
    gated: Option<&'static str>,
    surveys: bool,
    /// No ordered reductions.
    unordered: bool,
    /// The subtree must contain an accumulator.
    leads: bool,
    /// The subtree must use the value of a binding, if there is one.
    uses: bool,
}

struct Draw<'r> {
    random: &'r mut fastrand::Rng,
    names: u32,
    /// Whether C was read: it is one matrix.
    c: bool,
    arithmetic: Arithmetic,
}

impl Draw<'_> {
    fn of<'t>(&mut self, all: &[&'t str]) -> &'t str {
        all[self.random.usize(..all.len())]
    }

    fn name(&mut self) -> String {
        self.names += 1;
        format!("x{}", self.names)
    }

    fn leaf(&mut self, place: &Place) -> String {
        if place.leads {
            return match place.gated {
                Some(gate) => self.gate(gate, "acc"),
                None => "acc".to_owned(),
            };
        }
        let binding =
            place.bindings.len().checked_sub(1 + usize::from(place.bindings.len() > 1 && self.random.bool()));
        if let Some(binding) = binding.filter(|_| place.uses || self.random.u8(..3) == 0) {
            return place.bindings[binding].clone();
        }
        let (number, formats) = match self.arithmetic {
            Arithmetic::F32 => ("0.5", &["", "", ":f32", ":f16", ":e4m3", ":e5m2"][..]),
            Arithmetic::S32 => ("7", &["", ":s8", ":u8", ":s32"][..]),
            Arithmetic::F64 => ("0.1", &["", "", ":f32", ":bf16", ":u8", ":s32"][..]),
        };
        let (name, format) = (self.name(), self.of(formats));
        match self.random.u8(..10) {
            0 => number.to_owned(),
            1 => name,
            2 => format!("{name}[0]{format}"),
            3 | 4 => format!("{name}[n]{format}"),
            5 => format!("{name}[m]{format}"),
            6 => format!("{name}[m,n]{format}"),
            7 => format!("{name}[m,n%16]{format}"),
            8 if !self.c => {
                self.c = true;
                format!("({name}*c)")
            }
            9 if place.gated.is_none() => "acc".to_owned(),
            _ => format!("{name}[l,n]{format}"),
        }
    }

    /// A node that is computed in integers, or in double precision.
    fn exact(&mut self, place: &Place, below: &Place, beside: &Place) -> String {
        let x = match self.random.u8(..9) {
            0 => {
                let (value, name) = (self.node(&Place { depth: beside.depth, ..below.clone() }), self.name());
                let mut bindings = place.bindings.clone();
                bindings.push(name.clone());
                let body = self.node(&Place { bindings, leads: false, uses: true, ..below.clone() });
                return format!("({name}={value};{body})");
            }
            _ => self.node(below),
        };
        let beside = beside.clone();
        match self.random.u8(..8) {
            0 => format!("({x}+{})", self.node(&beside)),
            1 => format!("({x}-{})", self.node(&beside)),
            2 => format!("({x}*{})", self.node(&beside)),
            3 => format!("({x}*{}+{})", self.node(&beside), self.node(&beside)),
            4 => format!("max({x},{})", self.node(&beside)),
            5 => format!("clamp({x},{},{})", self.name(), self.name()),
            6 if !place.pure => {
                let formats: &[&str] =
                    if self.arithmetic == Arithmetic::S32 { &["", ":s8", ":u8"] } else { &["", ":f32"] };
                format!("store({}[m,n]{},{x})", self.name(), self.of(formats))
            }
            _ => format!("{}({x})", self.of(&["relu", "abs", "square", "neg"])),
        }
    }

    fn gate(&mut self, gate: &str, x: &str) -> String {
        let slope = if gate.contains("leaky") { ",0.1" } else { "" };
        format!("{gate}{x}{slope})")
    }

    fn node(&mut self, place: &Place) -> String {
        if place.depth <= 1 {
            return self.leaf(place);
        }
        let below = Place { depth: place.depth - 1, ..place.clone() };
        let beside = Place { leads: false, uses: false, depth: 1.max(below.depth / 2), ..below.clone() };
        let alone = |place: &Place| Place { bindings: Vec::new(), uses: false, ..place.clone() };
        if self.arithmetic != Arithmetic::F32 {
            return self.exact(place, &below, &beside);
        }
        let mut groups = vec!["one", "two", "two"];
        if !place.pure {
            groups.push("writes");
        }
        if place.gated.is_some() {
            groups.push("gate");
        }
        if place.surveys {
            groups.push("top");
        }
        match self.of(&groups) {
            "one" => {
                let x = self.node(&below);
                match self.random.u8(..6) {
                    0 => format!("clamp({x},{},{})", self.name(), self.name()),
                    1 => format!("leaky_relu({x},0.125)"),
                    2 => format!("dropout({},{x})", self.name()),
                    3 => format!("-({x})"),
                    _ => {
                        let f = self.of(&[
                            "relu",
                            "gelu_fast",
                            "gelu_tanh_fastest",
                            "silu_fast",
                            "silu",
                            "sigmoid_fast",
                            "abs",
                            "hard_swish",
                            "tanh_fast",
                            "square",
                        ]);
                        format!("{f}({x})")
                    }
                }
            }
            "two" => match self.random.u8(..9) {
                0 => {
                    let (value, name) =
                        (self.node(&Place { depth: beside.depth, ..below.clone() }), self.name());
                    let mut bindings = place.bindings.clone();
                    bindings.push(name.clone());
                    let body = self.node(&Place { bindings, leads: false, uses: true, ..below });
                    format!("({name}={value};{body})")
                }
                1 => {
                    let (x, angles) = (self.node(&alone(&below)), self.node(&alone(&beside)));
                    format!("rotate({x},{angles})")
                }
                other => {
                    let (x, y) = (self.node(&below), self.node(&beside));
                    match other {
                        2 => format!("({x}+{y})"),
                        3 => format!("({x}-{y})"),
                        4 => format!("({x}*{y})"),
                        5 => format!("max({x},{y})"),
                        6 => format!("d_silu_fast({x},{y})"),
                        7 => format!("min({x},{y})"),
                        _ => format!("({x}*{y}+{})", self.node(&beside)),
                    }
                }
            },
            "writes" => {
                let (x, name) = (self.node(&below), self.name());
                let ordered = if place.unordered || self.random.bool() { "reduce" } else { "ordered" };
                match self.random.u8(..4) {
                    0 => format!("store({name}[m,n]{},{x})", self.of(&["", ":f32", ":f16"])),
                    _ => {
                        let (op, index) = (self.of(&["sum", "max", "amax"]), self.of(&["n", "m", "0"]));
                        format!("{ordered}_{op}({name}[{index}],{x})")
                    }
                }
            }
            "gate" => {
                let gate = place.gated.unwrap_or("gated(relu,");
                let unordered = place.unordered || gate.contains("split");
                let x = self.node(&Place { gated: None, unordered, ..alone(&below) });
                self.gate(gate, &x)
            }
            _ => {
                let x = self.node(&Place { pure: true, surveys: false, ..alone(&below) });
                format!("top{}_softmax({x})", 1 + self.random.u8(..4))
            }
        }
    }
}
