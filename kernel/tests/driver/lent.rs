//! What a launch accesses must be lent: memory of epilogues and of mainloops, and what records name.

use super::*;

/// What an epilogue accesses must be lent as well: C of a linear epilogue, and what a tree names.
#[allow(unsafe_code, reason = "lends memory to be read alone")]
#[test]
fn memory_of_epilogues_is_lent() {
    with_stand_in("lent::memory_of_epilogues_is_lent", &[], &[], || {
        let mut gpu = Gpu::new(0).expect("the stand-in");
        let [a, b, c, d] = [(); 4].map(|()| gpu.allocate(BYTES).expect("memory"));
        let stream = Stream::new(gpu.context()).expect("a stream");
        let lent = [a, b, d, c].map(|buffer| gpu.memory(buffer).expect("allocated"));
        let all = lent.each_ref().map(DeviceSlice::from);
        let call = call(a.address, b.address, d.address);
        let (gemm, program) = small();
        let plain = Loaded::load_in(gpu.context(), gemm, program).expect("compiles");
        let error =
            plain.launch(&stream, &call.plus(1.0, c.address, 64), &all[..3]).expect_err("C is not lent");
        assert!(error.to_string().contains("C is 8192 B"), "{error}");
        plain.launch(&stream, &call.plus(1.0, c.address, 64), &all).expect("all is lent");

        collective::labels! {
            Bias = "bias";
        }
        type Summed =
            ReduceRow<Sum, Compute<MultiplyAdd, (Accumulator, Scalar, Named<Bias, RowVector<half::bf16>>)>>;
        let gemm = AnyGemm::of::<
            Composed<
                TmaWgmma<
                    Operands<KMajor<half::bf16>, KMajor<half::bf16>>,
                    Tile<U64, U64, U64>,
                    Cooperative<U1>,
                >,
                TreeEpilogue<half::bf16, DirectStore, Summed>,
                OneTile<AlongM>,
            >,
        >("summed");
        let program = gemm.program().expect("legal");
        let fused = Loaded::load_in(gpu.context(), gemm, program).expect("compiles");
        // SAFETY: it is the memory of the buffer.
        let read = unsafe { DeviceSlice::readable(c.address, c.bytes as u64) };
        for (why, bias, sums, lent, words) in [
            ("a bias of nobody's", 1 << 33, c.address, &all[..], "bias is 128 B"),
            ("a bias that ends behind its buffer", c.address + 8064, c.address, &all[..], ""),
            ("a bias that ends further behind", c.address + 8066, c.address, &all[..], "bias is 128 B"),
            ("sums that are not lent", b.address, c.address, &all[..3], "sum is 256 B"),
            ("sums lent to be read", b.address, c.address, &[all[0], all[1], all[2], read], "to be written"),
            ("all lent", b.address, c.address, &all[..], ""),
        ] {
            let bias = RowArgument { address: bias, len: 64 };
            let row = RowArgument { address: sums, len: 64 };
            let arguments = (row, ((), ((), 1.0, bias)));
            match fused.launch(&stream, &call.with(Tree::<Summed>(arguments)), lent) {
                Ok(()) => assert_eq!(words, "", "{why}"),
                Err(error) => {
                    let text = error.to_string();
                    assert!(!words.is_empty() && text.contains(words), "{why}: {text}");
                }
            }
        }
        assert_eq!(noted("launched"), 3);
    });
}

/// Arguments of a mainloop reach a loaded kernel, and the memory that they name must be lent.
#[test]
fn memory_of_mainloops_is_lent() {
    with_stand_in("lent::memory_of_mainloops_is_lent", &[], &[], || {
        type Gathers = Composed<Later, LinearCombination<half::bf16>, OneTile<AlongM>>;
        let mut gpu = Gpu::new(0).expect("the stand-in");
        let [a, b, d, first] = [(); 4].map(|()| gpu.allocate(BYTES).expect("memory"));
        let lent = [a, b, d, first].map(|buffer| gpu.memory(buffer).expect("allocated"));
        let all = lent.each_ref().map(DeviceSlice::from);
        let stream = Stream::new(gpu.context()).expect("a stream");
        let gemm = AnyGemm::of::<Gathers>("later");
        let program = gemm.program().expect("legal");
        let loaded = Loaded::load_in(gpu.context(), gemm, program).expect("compiles");
        let call = call(a.address, b.address, d.address);
        for (why, own, lent, words) in [
            ("all is lent", first.address, &all[..], ""),
            ("another number of the same buffer", first.address + 64, &all[..], ""),
            ("it is not lent", first.address, &all[..3], "first is 4 B"),
            ("the last byte is not lent", first.address + BYTES as u64 - 2, &all[..], "first is 4 B"),
            ("memory of the host", 1 << 33, &all[..], "first is 4 B"),
            ("nothing", 0, &all[..], "first is 4 B at 0x0"),
        ] {
            match loaded.launch(&stream, &call.with_mainloop(First(own)), lent) {
                Ok(()) => assert_eq!(words, "", "{why}"),
                Err(error) => {
                    let text = error.to_string();
                    assert!(!words.is_empty() && text.contains(words), "{why}: {text}");
                }
            }
        }
        let error = loaded.launch(&stream, &call, &all).expect_err("nothing is bound").to_string();
        assert!(error.contains("first is 4 B at 0x0"), "{error}");
        assert_eq!(noted("launched"), 2);
    });
}

#[test]
fn records_name_buffers_alone() {
    with_stand_in("lent::records_name_buffers_alone", &[], &[], || {
        let mut gpu = Gpu::new(0).expect("the stand-in");
        let buffer = gpu.allocate(2 * BYTES).expect("memory");
        let gemm = kernel::find("grouped-128x256-bf16-kk").expect("a name");
        let program = gemm.program().expect("legal");
        let workspace = gpu.workspace(gemm.workspace(&Call::grouped(1, 16), 132)).expect("memory");
        let own = buffer.address;
        let host = 1 << 33;
        for (why, k, addresses, legal) in [
            ("buffers", 64, [own; 4], true),
            ("a C that is not read", 64, [own, own, host, own], true),
            ("no sums: A and B are not read", 0, [host, host, 0, own], true),
            ("A of the host", 64, [host, own, 0, own], false),
            ("D of the host", 0, [0, 0, 0, host], false),
        ] {
            let record = Record { m: 64, n: 64, k, addresses, lds: [64; 4] };
            let records = gpu.upload(&record.to_bytes()).expect("memory");
            let call = Call { workspace, ..Call::grouped(1, records.address) };
            let launch = gemm.launch(&call, 132).expect("legal").expect("not empty");
            match gpu.prepare(&program, launch.grid, &launch.arguments) {
                Ok(_) => assert!(legal, "{why}"),
                Err(EngineError::Foreign { parameter, address, .. }) if parameter == "records" => {
                    assert_eq!((legal, address), (false, host), "{why}");
                }
                Err(error) => panic!("{why}: {error}"),
            }
        }
        let loaded = Loaded::load_in(gpu.context(), gemm, program).expect("compiles");
        let call = Call { workspace, ..Call::grouped(1, own) };
        let lent = gpu.memory(buffer).expect("allocated");
        let of_workspace =
            gpu.memory(workspace.expect("kernels for described products have one")).expect("allocated");
        let lent = [DeviceSlice::from(&lent), DeviceSlice::from(&of_workspace)];
        let error = loaded.launch(gpu.stream(), &call, &lent).expect_err("unchecked");
        assert!(matches!(error, EngineError::Described { .. }), "{error}");
    });
}

/// GEMMs that records describe are launched without `unsafe` if the records and all matrices are lent.
#[allow(unsafe_code, reason = "lends memory to be read alone")]
#[test]
fn records_are_lent_with_what_they_name() {
    with_stand_in("lent::records_are_lent_with_what_they_name", &[], &[], || {
        let mut gpu = Gpu::new(0).expect("the stand-in");
        let buffers = [(); 4].map(|()| gpu.allocate(BYTES).expect("memory"));
        let gemm = kernel::find("grouped-128x256-bf16-kk").expect("a name");
        let program = gemm.program().expect("legal");
        let workspace = gpu.workspace(gemm.workspace(&Call::grouped(2, 16), 132)).expect("memory");
        let memories = buffers.map(|buffer| gpu.memory(buffer).expect("allocated"));
        let of_workspace =
            gpu.memory(workspace.expect("kernels for described products have one")).expect("allocated");
        let loaded = Loaded::load_in(gpu.context(), gemm, program).expect("compiles");
        let [a, b, c, d] = buffers.map(|buffer| buffer.address);
        let good = Record { m: 64, n: 64, k: 64, addresses: [a, b, c, d], lds: [64; 4] };
        let at = |index: usize, address| {
            let mut addresses = good.addresses;
            addresses[index] = address;
            Record { addresses, ..good }
        };
        for (why, second, beta, words) in [
            ("all lent", good, 1.0, ""),
            ("one row too many", Record { m: 65, ..good }, 0.0, "record 1: kernel"),
            ("one row too many of D", Record { m: 65, k: 0, ..good }, 0.0, "D is 8320 B"),
            ("A of nobody", at(0, 1 << 33), 0.0, "A is 8192 B"),
            ("A of nobody, which is not read", Record { k: 0, ..at(0, 1 << 33) }, 0.0, ""),
            ("C of nobody", at(2, 1 << 33), 1.0, "C is 8192 B"),
            ("C of nobody, which is not read", at(2, 1 << 33), 0.0, ""),
            ("D that is read alone", at(3, a), 0.0, "to write"),
            ("D of an odd address", at(3, d + 2), 0.0, "record 1"),
            (
                "A with rows between the units of copies",
                Record { lds: [65, 64, 64, 64], m: 32, ..good },
                0.0,
                "record 1",
            ),
            ("a product of no rows, of nobody", Record { m: 0, addresses: [1 << 33; 4], ..good }, 1.0, ""),
        ] {
            let records =
                DeviceRecords::upload(gpu.context(), &[Record { m: 0, ..good }, second]).expect("memory");
            let mut call = Call { workspace, ..records.call() };
            (call.epilogue.alpha, call.epilogue.beta) = (1.0, beta);
            let [a, b, c, d] = memories.each_ref().map(DeviceSlice::from);
            // SAFETY: it is the memory of the buffer.
            let read = unsafe { DeviceSlice::readable(a.address(), a.bytes()) };
            let lent = [read, b, c, d, DeviceSlice::from(&of_workspace), DeviceSlice::from(&records)];
            match loaded.launch(gpu.stream(), &call, &lent) {
                Ok(()) => assert_eq!(words, "", "{why}"),
                Err(error) => {
                    let text = error.to_string();
                    assert!(!words.is_empty() && text.contains(words), "{why}: {text}");
                }
            }
            let error = loaded.launch(gpu.stream(), &call, &lent[..5]).expect_err("no records");
            assert!(error.to_string().contains("the records"), "{why}: {error}");
            let more = Call {
                products: kernel::GroupedProblem::PointerArray { count: 3, records: records.address() },
                ..call
            };
            let error = loaded.launch(gpu.stream(), &more, &lent).expect_err("two records");
            assert!(error.to_string().contains("the records is 240 B"), "{why}: {error}");
        }
    });
}
