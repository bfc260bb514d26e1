/* Matrix products by falchion's kernels for NVIDIA's Hopper (sm_90a).
 *
 *     D = alpha * A * B + beta * C        A is M x K, B is K x N, C and D are M x N, row by row
 *
 * A kernel is chosen for a product, or named by its words. It can be printed as PTX, run by an emulator on the host's memory, and
 * launched on a card. Nothing of NVIDIA's is needed but, for launches, its driver, which is loaded then.
 *
 * Functions return FALCHION_OK or what is wrong; falchion_last_error() has the words. A falchion_gemm may be used by several threads
 * at once, but is destroyed by one. */
#ifndef FALCHION_H
#define FALCHION_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    FALCHION_OK = 0,
    FALCHION_INVALID = 1,   /* an argument; the words name it, its value and what was needed */
    FALCHION_NO_KERNEL = 2, /* no kernel computes such a product, with the reason */
    FALCHION_DRIVER = 3,    /* the driver is missing, or refuses something */
    FALCHION_FAULT = 4,     /* the emulator found a fault in the run: a race, a bad access, a hang */
    FALCHION_INTERNAL = 5   /* a mistake of this library */
} falchion_status;

/* A kernel for products of one shape. */
typedef struct falchion_gemm falchion_gemm;

/* Products. */
typedef struct {
    /* Formats of A, B and D: "bf16" (all three), "bf16-bf16-f32", "f16", "tf32", "f32", "f64", "e4m3", "e4m3-e5m2-bf16", "s8", "u8". Of one
     * name, D is what it usually is: f32 for tf32, bf16 for 8-bit floats, s32 for integers. */
    const char *types;
    /* The contiguous directions of A and B: "kk" (A row by row, B column by column, as weights lie), "kn" (both row by row), "mk",
     * "mn". NULL is "kk". 8 bits and tf32 are multiplied as "kk" alone. */
    const char *layout;
    uint32_t m, n, k;
    /* Products in one launch; 0 and 1 are one. */
    uint32_t batch;
    /* The kernel's words, "tile=128x192x64 cluster=2x1" say; NULL has one chosen. */
    const char *spec;
} falchion_gemm_desc;

/* Matrices of a run: device addresses for falchion_gemm_launch, host pointers for falchion_gemm_emulate. */
typedef struct {
    const void *a, *b, *c; /* C may be D, and NULL where beta is 0 */
    void *d;
    /* Elements from one contiguous row or column to the next; 0 is packed. */
    uint64_t lda, ldb, ldc, ldd;
    /* Elements from one product's matrix to the next one's; 0 is packed. Looked at for batches alone. */
    uint64_t stride_a, stride_b, stride_c, stride_d;
    float alpha, beta;
    /* Device memory of falchion_gemm_workspace() bytes: zeroed once, and then left alone but for launches of one stream. Not looked at by the
     * emulator. */
    void *workspace;
    uint64_t workspace_bytes;
} falchion_gemm_args;

/* The library's version, as "0.1.0". */
const char *falchion_version(void);

/* What was wrong with this thread's last call that failed, "" if none did. It stays until the thread's next call that fails. */
const char *falchion_last_error(void);

/* Chooses or names a kernel. No card is needed. *gemm is NULL where it fails. */
falchion_status falchion_gemm_create(const falchion_gemm_desc *desc, falchion_gemm **gemm);

/* Frees it; NULL is nothing. Its launches have to have ended. */
void falchion_gemm_destroy(falchion_gemm *gemm);

/* The kernel's words, as a spec is written; they live as long as the kernel. NULL for NULL. */
const char *falchion_gemm_name(const falchion_gemm *gemm);

/* The kernel's program, which lives as long as the kernel. NULL for NULL. */
const char *falchion_gemm_ptx(const falchion_gemm *gemm);

/* Compiles the kernel for a card, in its primary context: milliseconds. */
falchion_status falchion_gemm_load(falchion_gemm *gemm, int device);

/* Bytes of device memory that a launch needs beside its matrices, once the kernel is loaded. */
falchion_status falchion_gemm_workspace(const falchion_gemm *gemm, uint64_t *bytes);

/* Enqueues a product on a CUstream of the card's primary context (NULL is the default one), and returns at once. */
falchion_status falchion_gemm_launch(falchion_gemm *gemm, void *stream, const falchion_gemm_args *args);

/* Runs the kernel on the host's memory, by an emulator of the card that finds races, and waits for it. */
falchion_status falchion_gemm_emulate(falchion_gemm *gemm, const falchion_gemm_args *args);

#ifdef __cplusplus
}
#endif

#endif
