/* falchion for C++: kernels that are freed by their destructors, and exceptions. falchion.h documents the structures.
 *
 *     falchion::Gemm gemm{desc};
 *     gemm.emulate(args);            // on the host's memory
 *     gemm.load(0);
 *     gemm.launch(stream, args);     // on a card
 */
#ifndef FALCHION_HPP
#define FALCHION_HPP

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

#include "falchion.h"

namespace falchion {

/* An error: its status, and the message as what(). */
class Error : public std::runtime_error {
public:
    explicit Error(falchion_status of) : std::runtime_error(falchion_last_error()), status(of) {}
    falchion_status status;
};

inline void check(falchion_status status) {
    if (status != FALCHION_OK) throw Error(status);
}

/* A kernel. It can be moved, not copied. */
class Gemm {
public:
    explicit Gemm(const falchion_gemm_desc &desc) {
        falchion_gemm *made = nullptr;
        check(falchion_gemm_create(&desc, &made));
        gemm_.reset(made);
    }
    /* The fastest of up to `budget` kernels that are measured on the description's card. */
    static Gemm tuned(const falchion_gemm_desc &desc, std::uint32_t budget) {
        falchion_gemm *made = nullptr;
        check(falchion_gemm_tune(&desc, budget, &made));
        return Gemm{made};
    }
    std::string name() const { return falchion_gemm_name(gemm_.get()); }
    std::string ptx() const { return falchion_gemm_ptx(gemm_.get()); }
    void load(int device) { check(falchion_gemm_load(gemm_.get(), device)); }
    std::uint64_t workspace() const {
        std::uint64_t bytes = 0;
        check(falchion_gemm_workspace(gemm_.get(), &bytes));
        return bytes;
    }
    void launch(void *stream, const falchion_gemm_args &args) { check(falchion_gemm_launch(gemm_.get(), stream, &args)); }
    void emulate(const falchion_gemm_args &args) { check(falchion_gemm_emulate(gemm_.get(), &args)); }
    falchion_gemm *get() const { return gemm_.get(); }

private:
    explicit Gemm(falchion_gemm *made) : gemm_(made) {}
    struct Free {
        void operator()(falchion_gemm *gemm) const { falchion_gemm_destroy(gemm); }
    };
    std::unique_ptr<falchion_gemm, Free> gemm_;
};

/* An attention kernel. It can be moved, not copied. */
class Attention {
public:
    explicit Attention(const falchion_attention_desc &desc) {
        falchion_attention *made = nullptr;
        check(falchion_attention_create(&desc, &made));
        attention_.reset(made);
    }
    /* The fastest of up to `budget` kernels that are measured on the description's card. */
    static Attention tuned(const falchion_attention_desc &desc, std::uint32_t budget) {
        falchion_attention *made = nullptr;
        check(falchion_attention_tune(&desc, budget, &made));
        return Attention{made};
    }
    std::string name() const { return falchion_attention_name(attention_.get()); }
    std::string ptx() const { return falchion_attention_ptx(attention_.get()); }
    void load(int device) { check(falchion_attention_load(attention_.get(), device)); }
    std::uint64_t workspace() const {
        std::uint64_t bytes = 0;
        check(falchion_attention_workspace(attention_.get(), &bytes));
        return bytes;
    }
    void launch(void *stream, const falchion_attention_args &args) { check(falchion_attention_launch(attention_.get(), stream, &args)); }
    void emulate(const falchion_attention_args &args) { check(falchion_attention_emulate(attention_.get(), &args)); }
    falchion_attention *get() const { return attention_.get(); }

private:
    explicit Attention(falchion_attention *made) : attention_(made) {}
    struct Free {
        void operator()(falchion_attention *attention) const { falchion_attention_destroy(attention); }
    };
    std::unique_ptr<falchion_attention, Free> attention_;
};

/* The kernels of attention's gradient. They can be moved, not copied. */
class AttentionBackward {
public:
    explicit AttentionBackward(const falchion_attention_desc &desc) {
        falchion_attention_backward *made = nullptr;
        check(falchion_attention_backward_create(&desc, &made));
        backward_.reset(made);
    }
    /* The fastest of up to `budget` kernels that are measured on the description's card. */
    static AttentionBackward tuned(const falchion_attention_desc &desc, std::uint32_t budget) {
        falchion_attention_backward *made = nullptr;
        check(falchion_attention_backward_tune(&desc, budget, &made));
        return AttentionBackward{made};
    }
    std::string name() const { return falchion_attention_backward_name(backward_.get()); }
    void load(int device) { check(falchion_attention_backward_load(backward_.get(), device)); }
    std::uint64_t workspace() const {
        std::uint64_t bytes = 0;
        check(falchion_attention_backward_workspace(backward_.get(), &bytes));
        return bytes;
    }
    void launch(void *stream, const falchion_attention_backward_args &args) {
        check(falchion_attention_backward_launch(backward_.get(), stream, &args));
    }
    void emulate(const falchion_attention_backward_args &args) { check(falchion_attention_backward_emulate(backward_.get(), &args)); }
    falchion_attention_backward *get() const { return backward_.get(); }

private:
    explicit AttentionBackward(falchion_attention_backward *made) : backward_(made) {}
    struct Free {
        void operator()(falchion_attention_backward *backward) const { falchion_attention_backward_destroy(backward); }
    };
    std::unique_ptr<falchion_attention_backward, Free> backward_;
};

}  // namespace falchion

#endif
