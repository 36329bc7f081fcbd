package source

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/aws/aws-sdk-go-v2/credentials/ec2rolecreds"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/stretchr/testify/require"
)

func awsEnv(pairs ...string) func(string) string {
	m := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return func(name string) string { return m[name] }
}

// The first link that the environment names is asked.
func TestAWSCredentialsByEnvironment(t *testing.T) {
	identity := []string{"AWS_WEB_IDENTITY_TOKEN_FILE", filepath.Join(t.TempDir(), "token"), "AWS_ROLE_ARN", "arn:aws:iam::1:role/r", "AWS_REGION", "eu-central-1"}
	keys := append([]string{"AWS_ACCESS_KEY_ID", "AKIA3", "AWS_SECRET_ACCESS_KEY", "s", "AWS_SESSION_TOKEN", "t"}, identity...)
	c, err := awsProvider(awsEnv(keys...)).Retrieve(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"AKIA3", "s", "t"}, []string{c.AccessKeyID, c.SecretAccessKey, c.SessionToken})

	p := awsProvider(awsEnv(identity...))
	require.IsType(t, &stscreds.WebIdentityRoleProvider{}, p)
	_, err = p.Retrieve(t.Context())
	require.ErrorContains(t, err, "token", "the file is not there")
	require.IsType(t, &ec2rolecreds.Provider{}, awsProvider(awsEnv()))
}

// A container's endpoint gets the token from its file, read anew each time.
func TestAWSContainerCredentials(t *testing.T) {
	var tokens []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tokens = append(tokens, r.Header.Get("Authorization"))
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"AccessKeyId":"AKIA4","SecretAccessKey":"s","Token":"t","Expiration":"2099-01-01T00:00:00Z"}`))
	}))
	defer srv.Close()
	file := filepath.Join(t.TempDir(), "token")
	p := awsProvider(awsEnv("AWS_CONTAINER_CREDENTIALS_FULL_URI", srv.URL+"/v1/credentials", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", file))
	for _, token := range []string{"first", "second"} {
		require.NoError(t, os.WriteFile(file, []byte(token), 0o600))
		c, err := p.Retrieve(t.Context())
		require.NoError(t, err)
		require.Equal(t, "AKIA4", c.AccessKeyID)
	}
	require.Equal(t, []string{"first", "second"}, tokens)
}
