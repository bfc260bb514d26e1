use falchion::prelude::*;
use falchion::verify::Bench;

type MyGemm = Composed<
    TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U128, U256, U64>, Cooperative<U2>>, // loads and multiplies
    LinearCombination<bf16, TmaStore>, // D = alpha * A * B + beta * C
    Persistent<Grouped<AlongM, U8>>,   // which CTA computes which tile
>;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let problem = GemmProblem { m: 300, n: 200, k: 136 };
    let checked = Bench::new(&mut Emulator::new(), 1).check::<MyGemm>(problem, &LinearArguments::scaled(0.5))?;
    println!("{} elements, largest error {:.2} of the bound", checked.compared, checked.ratio);
    Ok(())
}
