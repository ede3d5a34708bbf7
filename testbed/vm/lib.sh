# Sourced by fetch and vm: where things lie, and what the matrix says.
here=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
top=$(cd "$here/../.." && pwd)
state=${VM_DIR:-$top/build/vm}	# kernels, QEMU and results; nothing of it is committed

die() { echo "vm: $*" >&2; exit 1; }

# matrix [WHERE]: the names of the kernels, all or those marked WHERE.
matrix() { awk -v w="${1:-}" '!/^#/ && NF && (w == "" || $3 == w) { print $1 }' "$here/kernels"; }

# field NAME N: what the matrix says of a kernel.
field() { awk -v n="$1" -v f="$2" '!/^#/ && $1 == n { print $f }' "$here/kernels"; }

# arch KERNEL: its architecture, which ends the name of its package; arm64 is a foreign one.
arch() {
	case $(field "$1" 2) in
	*-arm64) echo arm64 ;;
	*) echo amd64 ;;
	esac
}
