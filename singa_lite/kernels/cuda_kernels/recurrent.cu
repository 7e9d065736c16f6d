// Cells of recurrent layers: what one step does beside its products. A thread for each unit of a sample.
// M: the mask's type, D: that of dy. Sums, which are products, and what is carried from step to step are in C.
#include "activated.cuh"

// N operands, which are matrices of a row for each sample. Strides count elements, 0 along an axis of one. Laid out as
// in recurrent.py. is_piecewise: activations are the piecewise linear ones, hard_sigmoid for sigmoid, ReLU for tanh.
template <int N> struct Cells {
    int64 count, units, is_piecewise;
    int64 strides[N][2];
};

// A unit of a sample. of(p, n, gate): its element of operand number n.
template <int N> struct Unit {
    const Cells<N>& cells;
    int64 sample, unit;

    __device__ inline Unit(const Cells<N>& cells, int64 index)
        : cells(cells), sample(index / cells.units), unit(index % cells.units) {}
    template <typename V> __device__ inline V& of(V* p, int n, int gate = 0) const {
        return p[sample * cells.strides[n][0] + (gate * cells.units + unit) * cells.strides[n][1]];
    }
    // 0 of an operand that is left out.
    template <typename V> __device__ inline C number(const V* p, int n, int gate = 0) const {
        return p ? C(of(p, n, gate)) : C(0);
    }
    // Whether a step counts by its mask.
    __device__ inline bool is_seen(const M* mask, int n) const {
        return !mask || Held<M>::type(of(mask, n)) != Held<M>::type(0);
    }
};

__device__ inline C gate(C x, bool is_hard) {
    if (!is_hard) return logistic(x);
    const C y = x / C(6) + C(0.5);
    return y < C(0) ? C(0) : y > C(1) ? C(1) : y;
}
// From the gate's result. NaN stays NaN.
__device__ inline C gate_slope(C y, bool is_hard) {
    const C slope = y * (C(1) - y);
    return !is_hard ? slope : slope > C(0) ? C(1) / C(6) : slope;
}
__device__ inline C tanh_slope(C y) { return C(1) - y * y; }

// The first four operands of a derivative: dy; sums, the product of the step behind, none at the first step that is
// done; carried, what goes past that step; the mask of that step, whose product does not count where it is 0.
// Returns the derivative by the state; adds: whether both the product and what is carried count.
template <int N>
__device__ inline C state_derivative(
    const Unit<N>& u, const D* dy, const C* sums, const C* carried, const M* next_mask, bool adds) {
    C sum = u.number(dy, 0);
    if (!sums) return sum;
    const bool seen = u.is_seen(next_mask, 3);
    if (seen) sum += u.of(sums, 1);
    if (adds || !seen) sum += u.of(carried, 2);
    return sum;
}

extern "C" __global__ void lstm_cell(
    Cells<8> cells, const T* gates_in, const C* sums, const M* mask, const T* hidden, const T* cell, T* gates,
    T* next_hidden, T* next_cell) {
    EACH(int64, index, cells.count) {
        const Unit<8> u(cells, index);
        C v[4];
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            const C x = C(u.of(gates_in, 0, k)) + u.of(sums, 1, k);
            v[k] = k == 2 ? tanh(x) : gate(x, cells.is_piecewise);
            u.of(gates, 5, k) = T(v[k]);
        }
        const bool seen = u.is_seen(mask, 2);
        const C before = C(u.of(cell, 4)), c = v[1] * before + v[0] * v[2];
        u.of(next_cell, 7) = T(seen ? c : before);
        u.of(next_hidden, 6) = T(seen ? v[3] * tanh(c) : C(u.of(hidden, 3)));
    }
}

// carried_cell: the derivative by the cell.
extern "C" __global__ void lstm_derivative_cell(
    Cells<10> cells, const D* dy, const C* sums, C* carried, const M* next_mask, const M* mask, const T* gates,
    const T* cell, const T* next_cell, C* carried_cell, T* dgates) {
    EACH(int64, index, cells.count) {
        const Unit<10> u(cells, index);
        const C dh = state_derivative(u, dy, sums, carried, next_mask, false);
        const C dc = sums ? u.of(carried_cell, 8) : C(0);
        if (!u.is_seen(mask, 4)) {
            u.of(carried, 2) = dh;
            u.of(carried_cell, 8) = dc;
#pragma unroll
            for (int k = 0; k < 4; ++k) u.of(dgates, 9, k) = T(0);
            continue;
        }
        const C i = C(u.of(gates, 5, 0)), f = C(u.of(gates, 5, 1)), g = C(u.of(gates, 5, 2)), o = C(u.of(gates, 5, 3));
        const C y = tanh(C(u.of(next_cell, 7))), all = dc + dh * o * tanh_slope(y);
        u.of(carried_cell, 8) = all * f;
        u.of(dgates, 9, 0) = T(all * g * gate_slope(i, cells.is_piecewise));
        u.of(dgates, 9, 1) = T(all * C(u.of(cell, 6)) * gate_slope(f, cells.is_piecewise));
        u.of(dgates, 9, 2) = T(all * i * tanh_slope(g));
        u.of(dgates, 9, 3) = T(dh * y * gate_slope(o, cells.is_piecewise));
    }
}

// The reset gate behind the product.
extern "C" __global__ void gru_cell(
    Cells<8> cells, const T* gates_in, const C* sums, const T* bias, const M* mask, const T* hidden, T* gates,
    T* products, T* next_hidden) {
    EACH(int64, index, cells.count) {
        const Unit<8> u(cells, index);
        C v[3];
#pragma unroll
        for (int k = 0; k < 3; ++k) v[k] = u.of(sums, 1, k) + u.number(bias, 2, k);
        const C r = gate(C(u.of(gates_in, 0, 0)) + v[0], cells.is_piecewise);
        const C z = gate(C(u.of(gates_in, 0, 1)) + v[1], cells.is_piecewise);
        const C n = tanh(C(u.of(gates_in, 0, 2)) + r * v[2]), before = C(u.of(hidden, 4));
        u.of(gates, 5, 0) = T(r);
        u.of(gates, 5, 1) = T(z);
        u.of(gates, 5, 2) = T(n);
        u.of(products, 6) = T(v[2]);
        u.of(next_hidden, 7) = T(u.is_seen(mask, 3) ? n + z * (before - n) : before);
    }
}

// The reset gate before the product: r and z, and r * h, which is 0 where masked, as the weight's gradient has it as a
// factor.
extern "C" __global__ void gru_reset_cell(
    Cells<7> cells, const T* gates_in, const C* sums, const T* bias, const M* mask, const T* hidden, T* gates,
    T* products) {
    EACH(int64, index, cells.count) {
        const Unit<7> u(cells, index);
        C v[2];
#pragma unroll
        for (int k = 0; k < 2; ++k) {
            v[k] = gate(C(u.of(gates_in, 0, k)) + u.of(sums, 1, k) + u.number(bias, 2, k), cells.is_piecewise);
            u.of(gates, 5, k) = T(v[k]);
        }
        u.of(products, 6) = T(u.is_seen(mask, 3) ? v[0] * C(u.of(hidden, 4)) : C(0));
    }
}

// Behind the product of r * h, which sums are: n and the next state.
extern "C" __global__ void gru_state_cell(
    Cells<7> cells, const T* gates_in, const C* sums, const T* bias, const M* mask, const T* hidden, T* gates,
    T* next_hidden) {
    EACH(int64, index, cells.count) {
        const Unit<7> u(cells, index);
        const C n = tanh(C(u.of(gates_in, 0, 2)) + u.of(sums, 1) + u.number(bias, 2, 2));
        const C z = C(u.of(gates, 5, 1)), before = C(u.of(hidden, 4));
        u.of(gates, 5, 2) = T(n);
        u.of(next_hidden, 6) = T(u.is_seen(mask, 3) ? n + z * (before - n) : before);
    }
}

// products, dproducts: none where the reset gate is before the product; the derivative by it is then made by
// gru_reset_derivative_cell, behind the product of that by n.
extern "C" __global__ void gru_derivative_cell(
    Cells<10> cells, const D* dy, const C* sums, C* carried, const M* next_mask, const M* mask, const T* gates,
    const T* hidden, const T* products, T* dproducts, T* dgates) {
    EACH(int64, index, cells.count) {
        const Unit<10> u(cells, index);
        const C dh = state_derivative(u, dy, sums, carried, next_mask, true);
        const bool seen = u.is_seen(mask, 4);
        const C r = C(u.of(gates, 5, 0)), z = C(u.of(gates, 5, 1)), n = C(u.of(gates, 5, 2));
        const C dn = dh * (C(1) - z) * tanh_slope(n);
        u.of(carried, 2) = seen ? dh * z : dh;
        if (dproducts) {
            u.of(dgates, 9, 0) = T(seen ? dn * C(u.of(products, 7)) * gate_slope(r, cells.is_piecewise) : C(0));
            u.of(dproducts, 8) = T(seen ? dn * r : C(0));
        }
        u.of(dgates, 9, 1) = T(seen ? dh * (C(u.of(hidden, 6)) - n) * gate_slope(z, cells.is_piecewise) : C(0));
        u.of(dgates, 9, 2) = T(seen ? dn : C(0));
    }
}

// sums: the derivative by r * h.
extern "C" __global__ void gru_reset_derivative_cell(
    Cells<6> cells, const C* sums, C* carried, const M* mask, const T* gates, const T* hidden, T* dgates) {
    EACH(int64, index, cells.count) {
        const Unit<6> u(cells, index);
        const bool seen = u.is_seen(mask, 2);
        const C r = C(u.of(gates, 3, 0)), sum = u.of(sums, 0);
        if (seen) u.of(carried, 1) += sum * r;
        u.of(dgates, 5, 0) = T(seen ? sum * C(u.of(hidden, 4)) * gate_slope(r, cells.is_piecewise) : C(0));
    }
}

extern "C" __global__ void simple_rnn_cell(
    Cells<5> cells, const T* gates_in, const C* sums, const M* mask, const T* hidden, T* next_hidden) {
    EACH(int64, index, cells.count) {
        const Unit<5> u(cells, index);
        const C x = C(u.of(gates_in, 0)) + u.of(sums, 1), y = cells.is_piecewise ? bounded(x, RELU) : tanh(x);
        u.of(next_hidden, 4) = T(u.is_seen(mask, 2) ? y : C(u.of(hidden, 3)));
    }
}

extern "C" __global__ void simple_rnn_derivative_cell(
    Cells<7> cells, const D* dy, const C* sums, C* carried, const M* next_mask, const M* mask, const T* next_hidden,
    T* dgates) {
    EACH(int64, index, cells.count) {
        const Unit<7> u(cells, index);
        const C dh = state_derivative(u, dy, sums, carried, next_mask, false);
        const bool seen = u.is_seen(mask, 4);
        const C y = C(u.of(next_hidden, 5)), slope = !cells.is_piecewise ? tanh_slope(y) : y > C(0) ? C(1) : y;
        if (!seen) u.of(carried, 2) = dh;
        u.of(dgates, 6) = T(seen ? dh * slope : C(0));
    }
}
