//go:build ignore

// Writes a Go file with the types that it is given the names of, out of an upstream source.
package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"slices"
)

func main() {
	source, names := os.Args[1], os.Args[2:]
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, source, nil, 0)
	if err != nil {
		panic(err)
	}
	var out bytes.Buffer
	fmt.Fprint(&out, "package main\n")
	found := 0
	for _, declaration := range parsed.Decls {
		types, ok := declaration.(*ast.GenDecl)
		if !ok || types.Tok != token.TYPE {
			continue
		}
		for _, spec := range types.Specs {
			if named := spec.(*ast.TypeSpec); slices.Contains(names, named.Name.Name) {
				found++
				fmt.Fprint(&out, "\ntype ")
				if err := format.Node(&out, files, named); err != nil {
					panic(err)
				}
				fmt.Fprint(&out, "\n")
			}
		}
	}
	if found != len(names) {
		panic(fmt.Sprintf("%d of %v are there", found, names))
	}
	os.Stdout.Write(out.Bytes())
}
