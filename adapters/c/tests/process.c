/* Makes, runs and destroys kernels of 100 epilogues and of 100 attention problems, or of as many as the argument says, and prints by how
 * many kB the process has grown. Ends with 0 if a forked process multiplies, too. */
#include <falchion.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static uint16_t halves[64 * 576];
static float bias[64];

static void check(falchion_status status)
{
    if (status != FALCHION_OK) {
        fprintf(stderr, "%s\n", falchion_last_error());
        _exit(1);
    }
}

static long resident(void)
{
    long pages = 0, all;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%ld %ld", &all, &pages) != 2)
        _exit(2);
    fclose(file);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static void gemm(int i)
{
    char text[64];
    falchion_gemm_desc desc;
    falchion_gemm *kernel;
    falchion_input input;
    falchion_gemm_args args;
    memset(&desc, 0, sizeof desc);
    memset(&input, 0, sizeof input);
    memset(&args, 0, sizeof args);
    snprintf(text, sizeof text, "relu(acc*%d.5 + bias%d[n]:f32)", i, i);
    desc.size = sizeof desc;
    desc.types = "bf16";
    desc.m = 16, desc.n = 32, desc.k = 64;
    desc.epilogue = text;
    desc.args_size = sizeof args;
    check(falchion_gemm_create(&desc, &kernel));
    snprintf(text, sizeof text, "bias%d", i);
    input.name = text;
    input.address = bias;
    args.a = halves, args.b = halves + 64 * 16, args.d = halves + 64 * 48;
    args.alpha = 1;
    args.inputs = &input;
    args.input_count = 1;
    check(falchion_gemm_emulate(kernel, &args));
    falchion_gemm_destroy(kernel);
}

static void attention(int i)
{
    falchion_attention_desc desc;
    falchion_attention *kernel;
    falchion_attention_args args;
    memset(&desc, 0, sizeof desc);
    memset(&args, 0, sizeof args);
    desc.size = sizeof desc;
    desc.types = "bf16";
    desc.batch = 1, desc.heads = 1, desc.queries = 4, desc.keys = 8 + i, desc.d = 64;
    check(falchion_attention_create(&desc, &kernel));
    if (desc.keys <= 64) {
        args.q = halves, args.k = halves + 64 * 64, args.v = halves + 64 * 128, args.o = halves + 64 * 192;
        check(falchion_attention_emulate(kernel, &args));
    }
    falchion_attention_destroy(kernel);
}

int main(int count, char **words)
{
    const int each = count > 1 ? atoi(words[1]) : 100;
    void (*const kinds[])(int) = {gemm, attention};
    for (int kind = 0; kind < 2; kind++) {
        kinds[kind](0);
        const long before = resident();
        for (int i = 1; i <= each; i++)
            kinds[kind](i);
        printf("%ld\n", resident() - before);
    }
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        alarm(20);
        gemm(1);
        gemm(each + 1);
        _exit(0);
    }
    int status = 0;
    return waitpid(child, &status, 0) != child || status != 0;
}
