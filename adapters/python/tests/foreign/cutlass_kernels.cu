// A GEMM of CUTLASS and the call that launches it: D = A * B for f16 in rows of K, with D in rows of N. KIND says which kernel.

#include <cute/tensor.hpp>
#include <cutlass/cutlass.h>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/device/gemm_universal_adapter.h>
#include <cutlass/gemm/group_array_problem_shape.hpp>
#include <cutlass/gemm/kernel/gemm_universal.hpp>
#include <cutlass/gemm/kernel/tile_scheduler.hpp>
#include <cutlass/util/packed_stride.hpp>

#define PINGPONG 0
#define COOPERATIVE 1
#define STREAM_K 2
#define GROUPED 3
#define FP8 4

using namespace cute;

#if KIND == FP8
using Element = cutlass::float_e4m3_t;
#else
using Element = cutlass::half_t;
#endif
using Result = cutlass::half_t;
using Rows = cutlass::layout::RowMajor;
using Columns = cutlass::layout::ColumnMajor;

#if KIND == PINGPONG
using Block = Shape<_64, _64, _64>;
using Cluster = Shape<_1, _1, _1>;
using Mainloop = cutlass::gemm::KernelTmaWarpSpecializedPingpong;
using Epilogue = cutlass::epilogue::TmaWarpSpecialized;
using Scheduler = cutlass::gemm::PersistentScheduler;
#elif KIND == GROUPED
using Block = Shape<_64, _64, _64>;
using Cluster = Shape<_1, _1, _1>;
using Mainloop = cutlass::gemm::KernelPtrArrayTmaWarpSpecializedPingpong;
using Epilogue = cutlass::epilogue::PtrArrayTmaWarpSpecializedPingpong;
using Scheduler = void;
#elif KIND == FP8
using Block = Shape<_128, _64, _64>;
using Cluster = Shape<_1, _1, _1>;
using Mainloop = cutlass::gemm::KernelTmaWarpSpecializedCooperativeFP8FastAccum;
using Epilogue = cutlass::epilogue::TmaWarpSpecializedCooperative;
using Scheduler = cutlass::gemm::PersistentScheduler;
#else
using Block = Shape<_128, _64, _64>;
using Mainloop = cutlass::gemm::KernelTmaWarpSpecializedCooperative;
using Epilogue = cutlass::epilogue::TmaWarpSpecializedCooperative;
#if KIND == STREAM_K
using Cluster = Shape<_1, _1, _1>;
using Scheduler = cutlass::gemm::StreamKScheduler;
#else
using Cluster = Shape<_2, _1, _1>;
using Scheduler = cutlass::gemm::PersistentScheduler;
#endif
#endif

#if KIND == GROUPED
using Problem = cutlass::gemm::GroupProblemShape<Shape<int, int, int>>;
using LayoutA = Rows *;
using LayoutB = Columns *;
using LayoutD = Rows *;
#else
using Problem = Shape<int, int, int, int>;
using LayoutA = Rows;
using LayoutB = Columns;
using LayoutD = Rows;
#endif

constexpr int wide = 16 / sizeof(Element);

using After = typename cutlass::epilogue::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Block, Cluster, cutlass::epilogue::collective::EpilogueTileAuto, float, float, void,
    LayoutD, 8, Result, LayoutD, 8, Epilogue>::CollectiveOp;
// Few, so that small problems go round.
using Stages = cutlass::gemm::collective::StageCount<3>;
using Multiply = typename cutlass::gemm::collective::CollectiveBuilder<cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Element, LayoutA, wide,
                                                                       Element, LayoutB, wide, float, Block, Cluster, Stages, Mainloop>::CollectiveOp;
using Kernel = cutlass::gemm::kernel::GemmUniversal<Problem, Multiply, After, Scheduler>;
using Gemm = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;

static int run(typename Gemm::Arguments &arguments, void *workspace, size_t bytes) {
    arguments.epilogue.thread.alpha = 1;
    arguments.epilogue.thread.beta = 0;
    if (Gemm::get_workspace_size(arguments) > bytes) return 100;
    if (Gemm::can_implement(arguments) != cutlass::Status::kSuccess) return 101;
    Gemm gemm;
    auto status = gemm.initialize(arguments, workspace);
    if (status == cutlass::Status::kSuccess) status = gemm.run();
    return static_cast<int>(status);
}

#if KIND == GROUPED
// Groups lie one after the other in A, B and D. `memory` is memory of the device for what the kernel finds its groups by.
extern "C" int call(const int (*sizes)[3], int groups, const Element *a, const Element *b, Result *d, int processors, void **memory,
                    void *workspace, size_t bytes) {
    using StrideA = typename Kernel::InternalStrideA;
    using StrideB = typename Kernel::InternalStrideB;
    using StrideD = typename Kernel::InternalStrideD;
    auto problems = static_cast<typename Problem::UnderlyingProblemShape *>(memory[0]);
    auto lefts = static_cast<const Element **>(memory[1]), rights = static_cast<const Element **>(memory[2]);
    auto results = static_cast<Result **>(memory[3]);
    auto strides_a = static_cast<StrideA *>(memory[4]);
    auto strides_b = static_cast<StrideB *>(memory[5]);
    auto strides_d = static_cast<StrideD *>(memory[6]);
    for (int group = 0; group < groups; group++) {
        auto [m, n, k] = std::tuple(sizes[group][0], sizes[group][1], sizes[group][2]);
        problems[group] = make_shape(m, n, k);
        lefts[group] = a, rights[group] = b, results[group] = d;
        strides_a[group] = cutlass::make_cute_packed_stride(StrideA{}, make_shape(m, k, 1));
        strides_b[group] = cutlass::make_cute_packed_stride(StrideB{}, make_shape(n, k, 1));
        strides_d[group] = cutlass::make_cute_packed_stride(StrideD{}, make_shape(m, n, 1));
        a += m * k, b += n * k, d += m * n;
    }
    cutlass::KernelHardwareInfo hardware{0, processors};
    typename Gemm::Arguments arguments{cutlass::gemm::GemmUniversalMode::kGrouped,
                                       {groups, problems, problems},
                                       {lefts, strides_a, rights, strides_b},
                                       {{}, nullptr, nullptr, results, strides_d},
                                       hardware};
    return run(arguments, workspace, bytes);
}
#else
extern "C" int call(int m, int n, int k, const Element *a, const Element *b, Result *d, int processors, void *workspace, size_t bytes) {
    auto stride_a = cutlass::make_cute_packed_stride(typename Kernel::StrideA{}, make_shape(m, k, 1));
    auto stride_b = cutlass::make_cute_packed_stride(typename Kernel::StrideB{}, make_shape(n, k, 1));
    auto stride_d = cutlass::make_cute_packed_stride(typename Kernel::StrideD{}, make_shape(m, n, 1));
    cutlass::KernelHardwareInfo hardware{0, processors};
    typename Gemm::Arguments arguments{cutlass::gemm::GemmUniversalMode::kGemm,
                                       {m, n, k, 1},
                                       {a, stride_a, b, stride_b},
                                       {{}, nullptr, {}, d, stride_d},
                                       hardware};
#if KIND == STREAM_K
    arguments.scheduler.decomposition_mode = cutlass::gemm::kernel::detail::PersistentTileSchedulerSm90StreamKParams::DecompositionMode::StreamK;
#endif
    return run(arguments, workspace, bytes);
}
#endif
