/* A transformer block with seeded weights, whose matrix products are falchion's: on a card where there is one, otherwise in the emulator. The
 * same block in double precision by plain loops says whether it is right.
 *
 *     cargo build --release && cc -O2 examples/block.c -Iinclude -Ltarget/release -lfalchion_c -lm -ldl -o block
 *     LD_LIBRARY_PATH=target/release ./block
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "falchion.h"

enum { TOKENS = 48, WIDTH = 64, HEADS = 4, DEPTH = WIDTH / HEADS, INNER = 256 };

static void check(falchion_status status, const char *what) {
    if (status != FALCHION_OK) {
        fprintf(stderr, "%s: %s\n", what, falchion_last_error());
        exit(1);
    }
}

/* bf16 is the upper half of a float. */
static float widened(uint16_t half) {
    uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static uint16_t rounded(double value) {
    float single = (float)value;
    uint32_t bits;
    memcpy(&bits, &single, 4);
    return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

/* SplitMix64, by S. Vigna: numbers between -1 and 1. */
static uint64_t state = 7;
static double random_number(void) {
    uint64_t z = state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (double)((z ^ (z >> 31)) >> 11) / (double)(1ull << 52) - 1.0;
}

/* What of the driver a launch needs, found at run time; nothing of it where there is no card. */
static struct {
    int found;
    int (*alloc)(uint64_t *, size_t);
    int (*release)(uint64_t);
    int (*to_card)(uint64_t, const void *, size_t);
    int (*from_card)(void *, uint64_t, size_t);
    int (*zero)(uint64_t, unsigned char, size_t);
} card;

static void find_card(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) return;
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
    int (*retain)(void **, int) = (int (*)(void **, int))dlsym(driver, "cuDevicePrimaryCtxRetain");
    int (*set)(void *) = (int (*)(void *))dlsym(driver, "cuCtxSetCurrent");
    card.alloc = (int (*)(uint64_t *, size_t))dlsym(driver, "cuMemAlloc_v2");
    card.release = (int (*)(uint64_t))dlsym(driver, "cuMemFree_v2");
    card.to_card = (int (*)(uint64_t, const void *, size_t))dlsym(driver, "cuMemcpyHtoD_v2");
    card.from_card = (int (*)(void *, uint64_t, size_t))dlsym(driver, "cuMemcpyDtoH_v2");
    card.zero = (int (*)(uint64_t, unsigned char, size_t))dlsym(driver, "cuMemsetD8_v2");
    void *context = NULL;
    if (!init || !retain || !set || init(0) || retain(&context, 0)) return;
    card.found = !set(context);
}

static uint64_t on_card(const void *host, size_t bytes) {
    uint64_t address = 0;
    if (card.alloc(&address, bytes) || (host && card.to_card(address, host, bytes))) {
        fprintf(stderr, "no device memory\n");
        exit(1);
    }
    return address;
}

/* y (rows x outputs) = x (rows x inputs) times the transpose of w (outputs x inputs). */
static void multiply(int rows, int outputs, int inputs, const uint16_t *x, const uint16_t *w, uint16_t *y) {
    falchion_gemm_desc desc = {
        .size = sizeof desc, .types = "bf16", .layout = "kk", .m = rows, .n = outputs, .k = inputs,
        .alignment = 16, .card = card.found};
    falchion_gemm_args args = {.a = x, .b = w, .d = y, .alpha = 1};
    falchion_gemm *gemm;
    check(falchion_gemm_create(&desc, &gemm), "create");
    if (!card.found) {
        check(falchion_gemm_emulate(gemm, &args), "emulate");
    } else {
        size_t bytes[3] = {2u * rows * inputs, 2u * outputs * inputs, 2u * rows * outputs};
        uint64_t at[4] = {on_card(x, bytes[0]), on_card(w, bytes[1]), on_card(NULL, bytes[2]), 0}, extra;
        check(falchion_gemm_load(gemm, 0), "load");
        check(falchion_gemm_workspace(gemm, &extra), "workspace");
        if (extra) {
            at[3] = on_card(NULL, extra);
            card.zero(at[3], 0, extra);
        }
        args = (falchion_gemm_args){
            .a = (void *)(uintptr_t)at[0], .b = (void *)(uintptr_t)at[1], .d = (void *)(uintptr_t)at[2], .alpha = 1,
            .workspace = (void *)(uintptr_t)at[3], .workspace_bytes = extra};
        check(falchion_gemm_launch(gemm, NULL, &args), "launch");
        if (card.from_card(y, at[2], bytes[2])) {
            fprintf(stderr, "the launch failed\n");
            exit(1);
        }
        for (int i = 0; i < 4; i++)
            if (at[i]) card.release(at[i]);
    }
    falchion_gemm_destroy(gemm);
}

/* A matrix in both precisions. */
typedef struct {
    int rows, columns;
    uint16_t *half;
    double *exact;
} matrix;

static matrix new_matrix(int rows, int columns) {
    size_t count = (size_t)rows * columns;
    return (matrix){rows, columns, calloc(count, 2), calloc(count, sizeof(double))};
}

static matrix random_matrix(int rows, int columns) {
    matrix m = new_matrix(rows, columns);
    for (int i = 0; i < rows * columns; i++) {
        m.half[i] = rounded(random_number() * sqrt(3.0 / columns));
        m.exact[i] = widened(m.half[i]);
    }
    return m;
}

static matrix linear(matrix x, matrix w) {
    matrix y = new_matrix(x.rows, w.rows);
    multiply(x.rows, w.rows, x.columns, x.half, w.half, y.half);
    for (int i = 0; i < x.rows; i++)
        for (int j = 0; j < w.rows; j++)
            for (int k = 0; k < x.columns; k++)
                y.exact[i * w.rows + j] += x.exact[i * x.columns + k] * w.exact[j * w.columns + k];
    return y;
}

/* Attention of every head by loops, in both precisions. */
static matrix attend(matrix qkv) {
    matrix out = new_matrix(TOKENS, WIDTH);
    for (int head = 0; head < HEADS; head++)
        for (int i = 0; i < TOKENS; i++)
            for (int exact = 0; exact < 2; exact++) {
                double scores[TOKENS], sum = 0, most = -INFINITY;
#define AT(row, column) (exact ? qkv.exact[(row) * 3 * WIDTH + (column)] : widened(qkv.half[(row) * 3 * WIDTH + (column)]))
                for (int j = 0; j < TOKENS; j++) {
                    scores[j] = 0;
                    for (int k = 0; k < DEPTH; k++)
                        scores[j] += AT(i, head * DEPTH + k) * AT(j, WIDTH + head * DEPTH + k) / sqrt(DEPTH);
                    most = fmax(most, scores[j]);
                }
                for (int j = 0; j < TOKENS; j++) sum += scores[j] = exp(scores[j] - most);
                for (int k = 0; k < DEPTH; k++) {
                    double mixed = 0;
                    for (int j = 0; j < TOKENS; j++) mixed += scores[j] / sum * AT(j, 2 * WIDTH + head * DEPTH + k);
                    int at = i * WIDTH + head * DEPTH + k;
                    if (exact) out.exact[at] = mixed;
                    else out.half[at] = rounded(mixed);
                }
            }
    return out;
}

static double gelu(double x) { return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))); }

static matrix activated(matrix x) {
    for (int i = 0; i < x.rows * x.columns; i++) {
        x.half[i] = rounded(gelu(widened(x.half[i])));
        x.exact[i] = gelu(x.exact[i]);
    }
    return x;
}

static matrix added(matrix x, matrix y) {
    for (int i = 0; i < x.rows * x.columns; i++) {
        y.half[i] = rounded(widened(x.half[i]) + widened(y.half[i]));
        y.exact[i] += x.exact[i];
    }
    return y;
}

int main(void) {
    find_card();
    printf("falchion %s, on %s\n", falchion_version(), card.found ? "the card" : "the emulator");
    matrix x = random_matrix(TOKENS, WIDTH);
    for (int i = 0; i < TOKENS * WIDTH; i++) x.exact[i] = widened(x.half[i] = rounded(random_number()));
    matrix qkv = random_matrix(3 * WIDTH, WIDTH), out = random_matrix(WIDTH, WIDTH);
    matrix up = random_matrix(INNER, WIDTH), down = random_matrix(WIDTH, INNER);

    x = added(x, linear(attend(linear(x, qkv)), out));
    x = added(x, linear(activated(linear(x, up)), down));

    double largest = 0, apart = 0;
    for (int i = 0; i < TOKENS * WIDTH; i++) {
        largest = fmax(largest, fabs(x.exact[i]));
        double error = fabs(x.exact[i] - widened(x.half[i]));
        apart = isnan(error) ? INFINITY : fmax(apart, error);
    }
    /* Some roundings to 8 bits. */
    double allowed = largest * 4 / 256;
    printf("outputs up to %.2f, at most %.4f from double precision, %.4f allowed\n", largest, apart, allowed);
    if (apart > allowed) return 1;
    puts("verified");
    return 0;
}
