/* GEMMs and attention by falchion's kernels for NVIDIA's Hopper (sm_90a).
 *
 *     D = alpha * A * B + beta * C        A is M x K, B is K x N, C and D are M x N, row-major
 *
 * The library chooses a kernel for a GEMM, or takes the kernel that a spec names. The kernel can be printed as PTX, run in an emulator on
 * the host's memory, and launched on a card. Only falchion_gemm_load and launches need NVIDIA's driver.
 *
 * Functions return FALCHION_OK or an error; falchion_last_error() returns its message. What is given and not used is refused, by its field's
 * name: a C without an epilogue that reads it, scales that the types do not name. What needs more memory than this machine has, or days in the
 * emulator, is refused before anything is allocated. Several threads may use a falchion_gemm at once, but only one may destroy it. */
#ifndef FALCHION_H
#define FALCHION_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    FALCHION_OK = 0,
    FALCHION_INVALID = 1,   /* an argument is invalid; the message names it, its value and what was needed */
    FALCHION_NO_KERNEL = 2, /* no kernel supports the GEMM; the message has the reason */
    FALCHION_DRIVER = 3,    /* the driver is missing, or returned an error */
    FALCHION_FAULT = 4,     /* the emulator found a fault in the run: a race, a bad access, a hang */
    FALCHION_INTERNAL = 5   /* an error of this library */
} falchion_status;

/* A kernel for GEMMs of one shape. */
typedef struct falchion_gemm falchion_gemm;

/* Describes the GEMMs of a kernel. Set all fields that are not used to 0: {.size = sizeof(falchion_gemm_desc), ...}. */
typedef struct {
    /* sizeof(falchion_gemm_desc). Later versions append fields, which are 0 in an earlier version's shorter structure. A longer structure
     * than this library's is refused if it is not zero where this library knows no field. */
    size_t size;
    /* Number formats of A, B and D: "bf16" (all three), "bf16-bf16-f32", "f16", "tf32", "f32", "f64", "e4m3", "e4m3-e5m2-bf16", "s8", "u8". With
     * one name, D has its default format: f32 for tf32, bf16 for 8-bit floats, s32 for integers (f32 with an epilogue), otherwise the same.
     * "e4m3-1x128-128x128": 8-bit floats with scales of blocks of 128 along K, of 1 or 128 rows of A, and columns of B. "bf16-s4g128",
     * "f16-u4g128z", "bf16-e2m1g32": B in codes of few bits, in groups of K with scales, and zero points (z); "s4g128-bf16": A.
     * "bf16-sparse-b", "s8-sparse-a": an operand that is 2:4 sparse along K. */
    const char *types;
    /* The contiguous directions of A and B: "kk" (A row-major, B column-major, as weights are stored), "kn" (both row-major), "mk",
     * "mn". NULL is "kk". 8-bit formats and tf32 support only "kk". */
    const char *layout;
    uint32_t m, n, k;
    /* Number of GEMMs, or of groups, in one launch; 0 means 1. */
    uint32_t batch;
    /* The kernel's spec, for example "tile=128x192x64 cluster=2x1"; NULL lets the library choose. falchion_gemm_name() returns such a
     * text. Types, layout and batch may be left out of it; where it names them, they must be those of this description. */
    const char *spec;
    /* Leading dimensions: elements from one contiguous row or column to the next; 0 is packed. */
    uint64_t lda, ldb, ldc, ldd;
    /* Elements from one GEMM's matrix to the next one's, of matrices of which there are several; 0 is packed. Otherwise 0; a batch of 1 may have
     * any. */
    uint64_t stride_a, stride_b, stride_c, stride_d;
    /* Every matrix address is a multiple of this number of bytes, a power of two; 0 means 256, as cuMemAlloc returns. Most kernels need 16,
     * also of leading dimensions; with less, a slower one is chosen. An element's address is always a multiple of its size. */
    uint32_t alignment;
    /* The card to choose for: 1 is the driver's card 0. 0 chooses for an H200 and asks no card. */
    uint32_t card;
    /* sizeof(falchion_gemm_args); 0 for its fields up to workspace_bytes, which is refused if the GEMM needs later ones. */
    size_t args_size;
    /* The epilogue as text, for example "gelu(alpha*acc + bias[n]:f32)"; NULL is alpha * A * B + beta * C. The manual of falchion's
     * collective::formula has the language. falchion_gemm_args passes its arguments by name. D's format is that of types, where it names
     * all three, otherwise the text's. A text's c is one matrix, which all GEMMs of a batch share, and has A's format; c[l,m,n]:f32 is one for each GEMM,
     * of float. */
    const char *epilogue;
    uint32_t flags; /* FALCHION_REPRODUCIBLE, or 0 */
    uint32_t form;  /* a falchion_form */
    uint32_t room;  /* rows of each group's buffer, for FALCHION_MASKED_ROWS; otherwise 0 */
    uint32_t reserved;
    /* Leading dimensions of scales, in scales; 0 is packed: rounded up to 16 bytes. Where an operand is several matrices (of a batch, or
     * the Bs of groups), its scales, zero points and metadata are as many, one after the other without gaps between whole lines. */
    uint64_t ld_scale_a, ld_scale_b, ld_group_scales;
} falchion_gemm_desc;

/* The bits of a row of D depend on nothing but that row of A, on B and on the epilogue: kernels sum in one order. */
#define FALCHION_REPRODUCIBLE 1u

/* How a launch has several GEMMs. */
typedef enum {
    FALCHION_BATCH = 0,        /* `batch` GEMMs of one shape, with matrices at the strides */
    FALCHION_GROUPED_ROWS = 1, /* `batch` groups of consecutive rows of A and D, each with its own B; m is the number of all rows.
                                * args->groups: batch + 1 offsets (uint32_t) in memory that the kernel reads */
    FALCHION_MASKED_ROWS = 2,  /* the same, each in a buffer of `room` rows; args->groups: the number of rows that each uses */
    FALCHION_GROUPED_K = 3,    /* groups along K, each with its own D; args->groups: batch + 1 offsets, multiples of 128 */
    FALCHION_POINTER_ARRAYS = 4 /* `batch` GEMMs of any shapes; m, n and k are those of a typical one, by which the kernel is chosen.
                                * args->groups: `batch` falchion_records in memory that the kernel reads. a, b, c and d of the arguments,
                                * leading dimensions and strides are not used. Formats alone: no scales, weights or sparse operands */
} falchion_form;

/* One GEMM of a pointer array, at a multiple of 16 bytes. The kernel reads it unchecked. */
typedef struct {
    uint32_t m, n, k, reserved;
    const void *a, *b, *c; /* multiples of 16 bytes; C may be NULL where beta is 0 */
    void *d;
    uint64_t lda, ldb, ldc, ldd; /* in elements; multiples of 16 bytes */
} falchion_record;

/* An argument of the epilogue's text. */
typedef struct {
    const char *name;    /* as in the text; alpha, beta and c are fields of falchion_gemm_args */
    const void *address; /* a vector or a matrix, which the kernel reads or writes; NULL for a number */
    uint64_t ld;         /* elements from one row of a matrix to the next; 0 is packed, and a vector's */
    uint64_t stride;     /* bytes from one GEMM's to the next one's, where the index has an l; 0 is packed */
    float value;         /* a number; the probability of a mask; of memory 0 */
    uint32_t reserved;   /* 0 */
    uint64_t seed, offset; /* of a mask; otherwise 0 */
    /* The following is read if falchion_gemm_args.input_size covers it. The number in double, for GEMMs of f64: if it is not 0, it is the
     * number, and `value` is 0 or the float next to it; else the call is refused. 0 means `value`. */
    double value_f64;
} falchion_input;

/* The arguments of a run: device addresses for falchion_gemm_launch, host pointers for falchion_gemm_emulate. */
typedef struct {
    const void *a, *b, *c; /* C may be D; C may be NULL where beta is 0; NULL where the epilogue's text has no c */
    void *d;
    float alpha, beta; /* factors without an epilogue as text: set alpha to 1 for a plain product, 0 makes D beta * C */
    /* Device memory of falchion_gemm_workspace() bytes. Zero it once; after that only launches on one stream may use it. The
     * emulator ignores it. */
    void *workspace;
    uint64_t workspace_bytes;
    /* The following are read if desc.args_size covers them. Addresses are multiples of 16. */
    /* Block scales (float): of blocks of one row, K by K block, each with M (or N) contiguous scales; of 128 rows, a line of K blocks each. */
    const void *scale_a, *scale_b;
    /* Scales and zero points of weights in few bits: a line of N (or M) per group, in the format that is multiplied; of e2m1 bytes. */
    const void *group_scales, *group_zeros;
    const void *metadata; /* of a sparse operand, from falchion_sparse_compress */
    /* See falchion_form. The emulator also checks the numbers: they do not fall, and none is beyond the last row, the room, or K. */
    const void *groups;
    const falchion_input *inputs; /* the arguments of the epilogue's text */
    size_t input_count;
    size_t input_size; /* sizeof(falchion_input), or 0, which means that of this header */
    /* The factors in double, for GEMMs of f64; others round them to float. If one is not 0, it is the factor, and alpha (or beta) is 0 or the
     * float next to it; else the call is refused. 0 means alpha (or beta). */
    double alpha_f64, beta_f64;
} falchion_gemm_args;

/* Returns the library's version, for example "0.1.0". */
const char *falchion_version(void);

/* Returns the message of this thread's last call that failed, "" if none did. It is valid until the thread's next call that fails. */
const char *falchion_last_error(void);

/* Makes a kernel: chooses one, or takes the one that desc->spec names. It serves the described leading dimensions, strides and alignment;
 * a description that no kernel serves is refused. A card is needed only where desc->card is not 0. *gemm is NULL on failure. */
falchion_status falchion_gemm_create(const falchion_gemm_desc *desc, falchion_gemm **gemm);

/* Measures up to `budget` kernels for the description on card `desc->card - 1`, and makes the fastest. The times are kept on disk (in the folder
 * that FALCHION_CACHE names, or the user's for caches): later calls of this function measure nothing, and falchion_gemm_create takes what was
 * measured on its card. It takes seconds, and memory for another copy of the matrices. */
falchion_status falchion_gemm_tune(const falchion_gemm_desc *desc, uint32_t budget, falchion_gemm **gemm);

/* Returns the kernel's time in microseconds: measured if it was tuned, otherwise predicted, or a NaN. */
double falchion_gemm_microseconds(const falchion_gemm *gemm);

/* Frees a kernel; NULL is ignored. Its launches must have ended. */
void falchion_gemm_destroy(falchion_gemm *gemm);

/* Returns the text of the kernel's spec, which desc->spec takes; valid as long as the kernel. NULL for NULL. */
const char *falchion_gemm_name(const falchion_gemm *gemm);

/* Returns the kernel's program as PTX text; valid as long as the kernel. NULL for NULL. */
const char *falchion_gemm_ptx(const falchion_gemm *gemm);

/* Compiles the kernel for a card, in its primary context. Takes milliseconds. */
falchion_status falchion_gemm_load(falchion_gemm *gemm, int device);

/* Writes the size in bytes of the workspace that a launch needs in addition to its matrices. The kernel must be loaded. */
falchion_status falchion_gemm_workspace(const falchion_gemm *gemm, uint64_t *bytes);

/* Enqueues the GEMM on a CUstream of the card's primary context (NULL is the default stream), and returns at once. */
falchion_status falchion_gemm_launch(falchion_gemm *gemm, void *stream, const falchion_gemm_args *args);

/* Runs the kernel on the host's memory, in an emulator of the card that finds races, and waits for the result. Addresses are checked as
 * falchion_gemm_launch checks them. It takes as much memory again as the arguments have; a GEMM of more than 2^24 k-tiles is refused. */
falchion_status falchion_gemm_emulate(falchion_gemm *gemm, const falchion_gemm_args *args);

/* Writes the number of bytes of weights in few bits, in the order that kernels read. code is s4, u4, s8, u8, e4m3, e5m2 or e2m1. More than
 * 2^40 weights are refused. */
falchion_status falchion_weights_bytes(const char *code, uint32_t rows, uint32_t k, uint64_t *bytes);

/* Puts weights in that order, on the host: codes are one per byte, row by row; rows are N (of a B) or M. */
falchion_status falchion_weights_reorder(const char *code, uint32_t rows, uint32_t k, const uint8_t *codes, uint8_t *out);

/* Writes how many elements of a row of a sparse operand are kept, and the bytes of its metadata. type is bf16, f16, e4m3, s8, ... */
falchion_status falchion_sparse_sizes(const char *type, uint32_t rows, uint32_t k, uint32_t *kept, uint64_t *metadata_bytes);

/* Compresses a packed matrix of rows x k on the host. values are rows * kept elements: kept is the leading dimension of the operand. */
falchion_status falchion_sparse_compress(const char *type, uint32_t rows, uint32_t k, const uint8_t *elements, uint8_t *values,
                                         uint8_t *metadata);

/* Attention: O = softmax(scale * Q * K^T) * V per head. A kernel for one shape. */
typedef struct falchion_attention falchion_attention;

/* A query sees the keys up to its own, where the last query stands at the last key. */
#define FALCHION_CAUSAL 1u
/* A query sees at most window[0] keys before its own, its own, and window[1] keys after it; -1 is no limit. With FALCHION_CAUSAL it sees none
 * after its own. Without this flag both are 0. */
#define FALCHION_WINDOW 2u
/* Sequences have their own numbers of queries and of keys and follow each other: queries and keys are those of the longest, and the
 * arguments say where each begins. Packed is (all rows, heads, d), and sequence[] is 0, but for keys in pages. */
#define FALCHION_PACKED 4u
/* Launches get falchion_attention_workspace() bytes, so that keys may be divided: faster for few queries and many keys. */
#define FALCHION_WORKSPACE 8u
/* Of a gradient: dQ has the same bits in every run. */
#define FALCHION_DETERMINISTIC 16u
/* Scores fall with the distance of query and key, by the slope of the head per key: slopes of the arguments has them, also those of each sequence. */
#define FALCHION_ALIBI 32u
#define FALCHION_SLOPES_PER_SEQUENCE 64u
/* Each head has a sink: sinks of the arguments. The log-sum-exp has it, and so has the gradient of Q, K and V. */
#define FALCHION_SINKS 128u
/* factors of the arguments have a number for each head of K. */
#define FALCHION_FACTORS_PER_HEAD 256u

/* Describes attention. Set all fields that are not used to 0. */
typedef struct {
    size_t size;                     /* sizeof(falchion_attention_desc) */
    const char *types;               /* "bf16" or "f16"; "bf16-f32", "f16-f32": O is float; "e4m3-bf16", "e4m3-f16", "e4m3-f32": Q, K and V have 8 bits */
    uint32_t batch, heads, kv_heads; /* heads is a multiple of kv_heads, whose 0 means heads: consecutive heads of Q share one of K and V */
    uint32_t queries, keys;          /* of a sequence */
    uint32_t d, dv;                  /* elements of a head of Q and K, and of V and O (0 means d): multiples of 16 from 32 to 256, dv at most d, or both 512; 576 with 512 is latent attention: V is the first 512 elements of K, and NULL */
    float scale;                     /* 0 means 1 / sqrt(d) */
    uint32_t flags;                  /* FALCHION_CAUSAL and the others, or 0 */
    uint32_t card;                   /* as falchion_gemm_desc */
    const char *spec;                /* for example "tile=128x160"; NULL lets the library choose */
    /* Elements from one row, head and sequence to the next, of Q, K, V and O; 0 is packed: (batch, heads, length, d). Those of Q, K and V are
     * multiples of 16 bytes, as their addresses are. */
    uint64_t row[4], head[4], sequence[4];
    uint32_t alignment; /* bytes of which O's address is a multiple; 0 means 256. Below 16 a slower kernel is chosen */
    uint32_t reserved;  /* 0 */
    size_t args_size;   /* sizeof(falchion_attention_args); 0 for its fields up to log_sum_exp */
    int32_t window[2];
    /* Keys of a page, 16 to 256, if K and V are in pages of a cache; 0 if they are not. K and V are then (pages, kv_heads, page, d), and
     * sequence[] is the distance of pages. keys are those of the longest sequence. */
    uint32_t page;
    float softcap;     /* scores are softcap * tanh(score / softcap), 1e-6 to 4096; 0 if they are not capped */
    const char *cache; /* "e4m3" if K and V have 8 bits in memory and Q has 16; otherwise NULL */
    /* Scores and a mask as text, in place of softcap, FALCHION_ALIBI, FALCHION_CAUSAL and FALCHION_WINDOW: "x+bias[h,q,k]:bf16", "q>=k&q-k<128"; or NULL.
     * x is the score, q and k are the numbers of query and key, h and b those of the head of queries and of the sequence. The manual's attention::formula
     * has the language. */
    const char *score, *sees;
} falchion_attention_desc;

/* An array that a formula reads, by its name there: at most 4 dimensions, and elements from one to the next along each; 0 if all are the same one. What follows the
 * last dimension is 0. */
typedef struct {
    const char *name;
    const void *address;
    uint32_t shape[4];
    uint64_t strides[4];
} falchion_array;

/* Device addresses for falchion_attention_launch, host pointers for falchion_attention_emulate. */
typedef struct {
    const void *q, *k, *v;
    void *o;
    float *log_sum_exp; /* of each query's scores, packed (batch, heads, queries), or (heads, all queries); NULL if it is not needed */
    /* The following are read if desc.args_size covers them. With FALCHION_PACKED: where each sequence of queries, and of keys, begins and
     * the last ends, batch + 1 numbers each; and their last numbers. Those of keys are NULL and 0 with pages. The emulator checks that they begin
     * with 0, do not fall, end with the last number, and that no sequence is longer than queries or keys. */
    const uint32_t *begins_q, *begins_k;
    uint32_t all_queries, all_keys;
    /* With pages: the number of keys of each sequence, and its pages in the order of its keys, `each` per sequence. A page that is not in
     * the cache is never read: the kernel traps, and the emulator refuses it before. */
    const uint32_t *lengths, *table;
    uint32_t each, pages;
    /* With FALCHION_WORKSPACE, otherwise NULL. Zero it once; after that only launches of this kernel on one stream may use it. With FALCHION_PACKED, zero
     * it again where all_queries changes. The emulator ignores it. */
    void *workspace;
    uint64_t workspace_bytes;
    /* With FALCHION_ALIBI, what scores fall by per key of distance: of each head of Q, or with FALCHION_SLOPES_PER_SEQUENCE (batch, heads).
     * With FALCHION_SINKS, of each head of Q a score that takes part in the sum of weights and has no value. */
    const float *slopes, *sinks;
    /* What elements of Q, K and V are multiplied by, if they have 8 bits: of one number each, or with FALCHION_FACTORS_PER_HEAD of one for each
     * head of K; NULL is 1. Those of Q and K are above 0. */
    const float *factors[3];
    /* The arrays of desc's score and sees, and sizeof(falchion_array), or 0, which means that of this header. */
    const falchion_array *arrays;
    size_t array_count, array_size;
} falchion_attention_args;

/* As the functions of falchion_gemm of the same names. */
falchion_status falchion_attention_create(const falchion_attention_desc *desc, falchion_attention **attention);
falchion_status falchion_attention_tune(const falchion_attention_desc *desc, uint32_t budget, falchion_attention **attention);
void falchion_attention_destroy(falchion_attention *attention);
const char *falchion_attention_name(const falchion_attention *attention); /* "" is the default kernel's */
const char *falchion_attention_ptx(const falchion_attention *attention);
double falchion_attention_microseconds(const falchion_attention *attention);
falchion_status falchion_attention_load(falchion_attention *attention, int device);
falchion_status falchion_attention_workspace(const falchion_attention *attention, uint64_t *bytes); /* 0 without FALCHION_WORKSPACE */
falchion_status falchion_attention_launch(falchion_attention *attention, void *stream, const falchion_attention_args *args);
falchion_status falchion_attention_emulate(falchion_attention *attention, const falchion_attention_args *args);

/* The gradients of Q, K and V, from the results of attention and the gradient of O. */
typedef struct falchion_attention_backward falchion_attention_backward;

typedef struct {
    const void *q, *k, *v, *o;
    const void *d_o; /* the gradient of O, with O's strides */
    const float *log_sum_exp;
    void *d_q, *d_k, *d_v; /* the gradients, with the strides of Q, K and V */
    void *workspace; /* falchion_attention_backward_workspace() bytes, a multiple of 128; what is in them does not matter */
    uint64_t workspace_bytes;
    const void *begins[2]; /* with FALCHION_PACKED, as in falchion_attention_args */
    uint32_t all[2];
    /* As in falchion_attention_args; read if desc.args_size covers them. */
    const float *slopes;
    const falchion_array *arrays;
    size_t array_count, array_size;
} falchion_attention_backward_args;

/* desc is that of the forward pass, without spec, pages, cache and FALCHION_SINKS; its alignment is 0 or a multiple of 16; d is at most 256. args_size is 0, without
 * FALCHION_ALIBI, or sizeof(falchion_attention_backward_args). K's gradient is the sum over the heads of Q that share one of K, and so is V's. */
falchion_status falchion_attention_backward_create(const falchion_attention_desc *desc, falchion_attention_backward **backward);
falchion_status falchion_attention_backward_tune(const falchion_attention_desc *desc, uint32_t budget, falchion_attention_backward **backward);
void falchion_attention_backward_destroy(falchion_attention_backward *backward);
const char *falchion_attention_backward_name(const falchion_attention_backward *backward); /* "" is the default's */
double falchion_attention_backward_microseconds(const falchion_attention_backward *backward);
falchion_status falchion_attention_backward_load(falchion_attention_backward *backward, int device);
falchion_status falchion_attention_backward_workspace(const falchion_attention_backward *backward, uint64_t *bytes);
falchion_status falchion_attention_backward_launch(falchion_attention_backward *backward, void *stream,
                                                   const falchion_attention_backward_args *args);
falchion_status falchion_attention_backward_emulate(falchion_attention_backward *backward, const falchion_attention_backward_args *args);

/* Two results of attention over different keys as one: O = (e^lse_a O_a + e^lse_b O_b) / (e^lse_a + e^lse_b), and the logarithm of that sum. */
typedef struct {
    size_t size; /* sizeof(falchion_merge_attention_args) */
    const char *types; /* "bf16", "f16" or "f32": the elements of O_a, O_b and O */
    uint32_t batch, heads, rows, d; /* d: a multiple of 8, of f32 of 4 */
    uint32_t reserved; /* 0 */
    uint64_t row[3], head[3], sequence[3]; /* of O_a, O_b and O, in elements: from one row, head and sequence to the next; 0 if they are packed */
    const void *o_a;
    const float *lse_a; /* packed, sequences x heads x rows; minus infinity: the row becomes the other one, whatever its elements are */
    const void *o_b;
    const float *lse_b;
    void *o; /* may be exactly in the place of O_a or of O_b */
    float *log_sum_exp; /* may be lse_a or lse_b */
} falchion_merge_attention_args;

/* device is the card's number, and stream a CUstream of its primary context; NULL is the default stream. The first call of a type of elements on a card
 * loads the kernel, which cannot be captured; later ones can. */
falchion_status falchion_merge_attention(int device, void *stream, const falchion_merge_attention_args *args);
falchion_status falchion_merge_attention_emulate(const falchion_merge_attention_args *args);

/* New keys and values, written to pages of a cache: token i becomes key slots[i] % page of page slots[i] / page. A slot of -1 leaves a token out; all other
 * slots differ. One that is not in the cache is refused in the host's memory, and ends the kernel with a fault on a card. */
typedef struct {
    size_t size; /* sizeof(falchion_append_pages_args) */
    const char *types; /* "bf16" or "f16" */
    uint32_t tokens, kv_heads, d, dv; /* d and dv: multiples of 8; dv 0 is d, or no V if v and v_cache are NULL: that of latent attention is in K */
    uint32_t pages, page; /* pages of the cache, and keys of a page */
    uint32_t slot_bits; /* 32, 64, or 0 for 32 */
    uint32_t reserved; /* 0 */
    uint64_t row[4], head[4]; /* of K, V, their cache: from one token, or key of a page, and from one head to the next; 0 if packed:
                               * (tokens, heads, d) and (pages, heads, keys of a page, d) */
    uint64_t page_step[2]; /* from one page of the caches of K and V to the next */
    const void *k, *v;
    void *k_cache, *v_cache;
    const void *slots; /* a number with a sign per token */
} falchion_append_pages_args;

falchion_status falchion_append_pages(int device, void *stream, const falchion_append_pages_args *args);
falchion_status falchion_append_pages_emulate(const falchion_append_pages_args *args);

#ifdef __cplusplus
}
#endif

#endif
