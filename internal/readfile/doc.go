// Package readfile reads files of limited size that people provide.
package readfile
