// Gives the targets that own the precompiled headers something to compile.
int main() { return 0; }
