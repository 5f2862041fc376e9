"""Many runs of one config, in processes of this machine or jobs of a cluster."""
