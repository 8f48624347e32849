"""Truth to compare with: the closed-chain robot in C MuJoCo, the stand-in for hardware."""
