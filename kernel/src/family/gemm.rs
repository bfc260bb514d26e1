//! GEMM as a family: the kernels of a request, and what a kernel must write of one.

mod described;
mod evaluated;
mod matrices;
mod stored;

use collective::tree::{AnyNode, Host, Node, Shape};
use collective::{Bounded, Formula, LinearArguments, RoleRegisters};

use self::matrices::Matrices;
use super::{Expected, Family, Inputs, Predicted, Problem, alike};
use crate::arguments::GemmArguments;
use crate::call::Call;
use crate::gemm::AnyGemm;
use crate::named::Named;
use crate::operands::{Contents, Visit};
use crate::select::{Known, Machine, Ranked, Request, Selection, measured, rank, search};
use crate::spec::KernelSpec;
use crate::types::Types;

impl Family for AnyGemm {
    const NAME: &'static str = "gemm";
    const VERSIONED: bool = true;
    type Request<'r> = Request<'r>;
    type Problem = Problem;
    type Spec = KernelSpec;
    type Call = Call<GemmArguments>;

    fn of_spec(spec: &KernelSpec) -> Result<Self, String> {
        spec.kernel().map_err(|error| error.to_string())
    }

    fn spec(&self) -> Option<KernelSpec> {
        Self::spec(self)
    }

    fn call(request: &Request<'_>) -> Self::Call {
        let call = Call { workspace: None, ..request.call };
        let arguments = match request.fusion {
            None => request.call.epilogue.into(),
            Some(formula) => {
                let n = call.problem.n >> formula.halvings();
                GemmArguments::of(formula, request.types.a, Shape { m: call.problem.m, n })
            }
        };
        call.with(arguments)
    }

    fn ranked(request: &Request<'_>, machine: &Machine, most: usize) -> Result<Vec<Predicted<Self>>, String> {
        let Selection { ranked, refused } = search(request, machine, most);
        if ranked.is_empty() {
            let reason = refused.into_iter().next().map(|refused| refused.error.to_string());
            let reason = reason.or_else(|| request.impossible());
            return Err(reason.unwrap_or_else(|| "no kernel of the space fits".to_owned()));
        }
        Ok(ranked.into_iter().map(Predicted::from).collect())
    }

    fn unrecorded<'r>(request: &Self::Request<'r>) -> Self::Request<'r> {
        request.known(Known::Nothing)
    }

    fn predicted(self, request: &Request<'_>, machine: &Machine) -> Result<Predicted<Self>, String> {
        let mut selection = rank(vec![self], request, machine);
        match (selection.ranked.pop(), selection.refused.pop()) {
            (Some(ranked), _) => Ok(ranked.into()),
            (None, Some(refused)) => Err(refused.error.to_string()),
            (None, None) => {
                let needed =
                    request.fusion.map_or("`epilogue=linear` or `epilogue=sourced`".to_owned(), |of| {
                        format!("`epilogue={of}`")
                    });
                Err(format!("{needed} was needed"))
            }
        }
    }

    fn said(request: &Request<'_>) -> Vec<(&'static str, String)> {
        let [a, b, d] =
            [request.types.a, request.types.b, request.types.d].map(|format| format.name().to_owned());
        let form = match request.call.products.form().suffix().trim_start_matches('_') {
            "" => "single".to_owned(),
            suffix => suffix.replace('_', "-"),
        };
        let layout = request.majors.word().to_owned();
        let mut said = vec![("form", form), ("dtype", a), ("dtype-b", b), ("out", d), ("layout", layout)];
        said.extend(request.fusion.map(|formula| ("epilogue", formula.text().to_owned())));
        said
    }

    fn serves(&self, request: &Request<'_>) -> Result<(), String> {
        let (plan, products) = (self.plan(), request.call.products);
        let form = products.for_form(plan.form).map_or(products.form(), |_| plan.form);
        let epilogue = |fusion: Option<Formula>| fusion.map_or("linear", Formula::name).to_owned();
        let fusion = self.spec().and_then(|spec| spec.fusion());
        let fused = if fusion.is_none() && self.epilogue.linear().is_none() {
            self.epilogue.name()
        } else {
            epilogue(fusion)
        };
        alike([
            ("form", plan.form.word(), form.word()),
            ("types", &Types::of_plan(&plan).to_string(), &request.stored().to_string()),
            ("layout", plan.majors().word(), request.majors.word()),
            ("epilogue", &fused, &epilogue(request.fusion)),
        ])
    }

    fn operations(request: &Request<'_>) -> f64 {
        request.operations()
    }

    fn words(request: &Request<'_>, _contents: Contents) -> Vec<u32> {
        request.call.products.table(&request.groups().unwrap_or_default())
    }

    fn describe(request: &Request<'_>, visit: &mut dyn Visit) -> Vec<u32> {
        described::describe(request, visit)
    }

    fn measured(
        request: &Request<'_>,
        machine: &Machine,
        times: &[(KernelSpec, f64)],
    ) -> Option<Predicted<Self>> {
        measured(&request.known(Known::Measured(times)), machine).map(Predicted::from)
    }

    fn expect(
        &self,
        request: &Request<'_>,
        call: &Self::Call,
        inputs: &Inputs<'_>,
    ) -> Result<Vec<Expected>, String> {
        let given = match &call.epilogue {
            GemmArguments::Linear(linear) => {
                let request = Request { call: call.clone().with(*linear), ..*request };
                return Ok(vec![Matrices::new(self, &request, inputs)?.expected()]);
            }
            GemmArguments::Formula(given) => given,
        };
        let request = Request { call: call.clone().with(LinearArguments::default()), ..*request };
        self.evaluated(&request, inputs, &|host, at| AnyNode::evaluate(host, given.nodes(), at))
    }

    fn numbers(&self) -> Vec<[String; 3]> {
        let plan = self.plan();
        let RoleRegisters { producer, consumer, .. } = plan.registers.roles();
        let [m, n, k] = plan.mainloop.tile;
        let row = |what: &str, value: String, why: &str| [what.to_owned(), value, why.to_owned()];
        vec![
            row("tile", format!("{m}x{n}x{k}"), "M, N and K of a CTA's stage"),
            row("stages", plan.ring.stages.to_string(), "tiles of A and B"),
            row("consumer warpgroups", plan.mainloop.consumers.to_string(), "that multiply and store"),
            row("registers, producer", producer.to_string(), "after setmaxnreg"),
            row("registers, consumer", consumer.to_string(), "after setmaxnreg"),
        ]
    }
}

impl AnyGemm {
    /// What the kernel must write for the call of a request, if this is the value of its epilogue at a row and a column of D, and what else
    /// it writes is recorded by the host. The epilogue's arguments that the request's call has are not used, but whether A and B are read.
    ///
    /// # Errors
    /// What of the results is not known, in a sentence.
    pub fn evaluated(
        &self,
        request: &Request<'_>,
        inputs: &Inputs<'_>,
        evaluate: &dyn Fn(&mut Host<'_>, [u32; 2]) -> Bounded,
    ) -> Result<Vec<Expected>, String> {
        Matrices::new(self, request, inputs)?.evaluated(evaluate)
    }
}

impl From<Ranked> for Predicted<AnyGemm> {
    fn from(Ranked { gemm, prediction, measured, reason }: Ranked) -> Self {
        Self { kernel: gemm, microseconds: measured.unwrap_or(prediction.microseconds), reason }
    }
}
