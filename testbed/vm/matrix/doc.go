// Package matrix boots the kernels of CI in a virtual machine, as a test of its own: ../README.md
// tells what there is.
package matrix
