// Package lint holds the tests that keep the project's shape: which room may
// import which, what the pure ones must not touch, and how files look.
package lint
