"""`pegainfer bench`: measures servers, engines, start-up and kernels. Serves nothing itself."""
