package readme

import (
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/internal/need"
)

// A Go file whose library no module requires is at least parsed and formatted.
func TestMigratingSourcesAreFormatted(t *testing.T) {
	files, err := filepath.Glob("testdata/*.go")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		formatted, err := format.Source(source)
		require.NoError(t, err, file)
		require.Equal(t, string(formatted), string(source), file)
	}
}

// Netty's own class runs its side of the page.
func TestMigratingFromNetty(t *testing.T) {
	t.Parallel()
	java := need.Program(t, "default-jdk-headless", "java")
	need.Program(t, "default-jdk-headless", "javac") // a JRE cannot run a source file
	var classpath []string
	for _, jar := range []string{"netty-common.jar", "jctools-core.jar"} {
		path := filepath.Join("/usr/share/java", jar)
		if _, err := os.Stat(path); err != nil {
			need.Skip(t, path, "libnetty-java")
		}
		classpath = append(classpath, path)
	}
	out, err := exec.Command(java, "-cp", strings.Join(classpath, string(os.PathListSeparator)), "testdata/Netty.java").Output()
	require.NoError(t, err, "%s", out)
	require.Equal(t, "true []", strings.TrimSpace(string(out)))
}
