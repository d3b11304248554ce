// Package types has the one type that the image credentials of kubelet 1.9 name. Its device manager never gets there,
// and docker's modules of that age can't be had.
package types

type AuthConfig struct {
	Username, Password, Auth, Email, ServerAddress, IdentityToken, RegistryToken string
}
