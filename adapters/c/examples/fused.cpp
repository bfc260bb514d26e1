// A GEMM of integers with an epilogue as text, by the C++ header, in the emulator:
//     c++ -std=c++11 examples/fused.cpp $(pkg-config --cflags --libs falchion) -o fused && ./fused
#include <cstdint>
#include <cstdio>
#include <vector>

#include "falchion.hpp"

int main() {
    const int m = 30, n = 20, k = 48;
    std::vector<std::int8_t> a(m * k), b(n * k);
    for (int i = 0; i < m * k; i++) a[i] = static_cast<std::int8_t>(i * 7 % 15 - 7);
    for (int i = 0; i < n * k; i++) b[i] = static_cast<std::int8_t>(i * 11 % 15 - 7);
    std::vector<float> bias(n), d(m * n);
    for (int j = 0; j < n; j++) bias[j] = static_cast<float>(j - 10);

    falchion_gemm_desc desc{};
    desc.size = sizeof desc;
    desc.args_size = sizeof(falchion_gemm_args);
    desc.types = "s8";
    desc.m = m, desc.n = n, desc.k = k;
    desc.alignment = 1;
    desc.epilogue = "relu(alpha*acc + bias[n])";
    falchion_input input{};
    input.name = "bias", input.address = bias.data();
    falchion_gemm_args args{};
    args.a = a.data(), args.b = b.data(), args.d = d.data();
    args.alpha = 2;
    args.inputs = &input, args.input_count = 1;
    falchion::Gemm gemm{desc};
    gemm.emulate(args);
    for (int i = 0; i < m; i++) {
        for (int j = 0; j < n; j++) {
            float want = bias[j];
            for (int l = 0; l < k; l++) want += 2.0f * a[i * k + l] * b[j * k + l];
            if (d[i * n + j] != (want > 0 ? want : 0)) return std::printf("(%d, %d) is wrong\n", i, j), 1;
        }
    }
    desc.epilogue = "relu(acc";
    try {
        falchion::Gemm refused{desc};
        return std::puts("a text that is no formula was taken"), 1;
    } catch (const falchion::Error &error) {
        std::printf("refused: %s\n", error.what());
    }
    std::puts("verified");
}
