// The part of CBLAS that kernels use, with its names; kernels/browser/blas.cpp computes it.
#pragma once

enum CBLAS_ORDER { CblasRowMajor = 101, CblasColMajor = 102 };
enum CBLAS_TRANSPOSE { CblasNoTrans = 111, CblasTrans = 112 };

// c (m, n) = alpha a (m, k) b (k, n) + beta c, with a, b or both given as their transposes. Row-major alone.
void cblas_sgemm(CBLAS_ORDER order, CBLAS_TRANSPOSE trans_a, CBLAS_TRANSPOSE trans_b, int m, int n, int k, float alpha,
                 const float* a, int lda, const float* b, int ldb, float beta, float* c, int ldc);
void openblas_set_num_threads(int count);
char* openblas_get_config();
