package source

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/credentials/ec2rolecreds"
	"github.com/aws/aws-sdk-go-v2/credentials/endpointcreds"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/sts"
)

// awsChain finds AWS credentials where pods and servers have them, in the order of AWS's own tools: variables, a web identity (IRSA), a
// container's endpoint (EKS Pod Identity, ECS), the role of the instance. Profiles and single sign-on, which only people's machines have, are
// left out: they would be a tenth of the binary. Credentials are kept until shortly before their end; a failed attempt is not kept.
type awsChain struct {
	mu       sync.Mutex
	provider awssdk.CredentialsProvider
}

// awsTimeout bounds one look-up: the chain may try an instance metadata service that is not there.
const awsTimeout = 10 * time.Second

func (a *awsChain) keys(ctx context.Context) (AWSKeys, error) {
	ctx, cancel := context.WithTimeout(ctx, awsTimeout)
	defer cancel()
	c, err := a.load().Retrieve(ctx)
	if err != nil {
		return AWSKeys{}, fmt.Errorf("AWS credentials: %w", err)
	}
	return AWSKeys{AccessKey: c.AccessKeyID, SecretKey: c.SecretAccessKey, SessionToken: c.SessionToken}, nil
}

func (a *awsChain) load() awssdk.CredentialsProvider {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.provider == nil {
		//nolint:forbidigo // these are AWS's variables, which its SDK would read itself, and no settings of ours
		a.provider = awssdk.NewCredentialsCache(awsProvider(os.Getenv), func(o *awssdk.CredentialsCacheOptions) { o.ExpiryWindow = 5 * time.Minute })
	}
	return a.provider
}

// The variables, as AWS documents them (SDKs and Tools Reference Guide: environment variables, container credential provider).
func awsProvider(env func(string) string) awssdk.CredentialsProvider {
	switch {
	case env("AWS_ACCESS_KEY_ID") != "":
		return credentials.NewStaticCredentialsProvider(env("AWS_ACCESS_KEY_ID"), env("AWS_SECRET_ACCESS_KEY"), env("AWS_SESSION_TOKEN"))
	case env("AWS_WEB_IDENTITY_TOKEN_FILE") != "":
		region := env("AWS_REGION")
		if region == "" {
			region = env("AWS_DEFAULT_REGION")
		}
		return stscreds.NewWebIdentityRoleProvider(sts.New(sts.Options{Region: region}), env("AWS_ROLE_ARN"),
			stscreds.IdentityTokenFile(env("AWS_WEB_IDENTITY_TOKEN_FILE")),
			func(o *stscreds.WebIdentityRoleOptions) { o.RoleSessionName = env("AWS_ROLE_SESSION_NAME") })
	case env("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") != "":
		return containerCredentials("http://169.254.170.2"+env("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"), env)
	case env("AWS_CONTAINER_CREDENTIALS_FULL_URI") != "":
		return containerCredentials(env("AWS_CONTAINER_CREDENTIALS_FULL_URI"), env)
	}
	return ec2rolecreds.New()
}

func containerCredentials(uri string, env func(string) string) awssdk.CredentialsProvider {
	return endpointcreds.New(uri, func(o *endpointcreds.Options) {
		o.AuthorizationToken = env("AWS_CONTAINER_AUTHORIZATION_TOKEN")
		if file := env("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"); file != "" {
			o.AuthorizationTokenProvider = endpointcreds.TokenProviderFunc(func() (string, error) {
				token, err := os.ReadFile(file) // it is replaced from time to time
				return string(token), err
			})
		}
	})
}
