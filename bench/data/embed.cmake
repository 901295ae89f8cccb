# cmake -DINPUT=file -DOUTPUT=file.c -DNAME=symbol -P embed.cmake
# A file as a C array, so that the command needs no file at run time.
file(READ ${INPUT} hex HEX)
string(REGEX REPLACE "(..)" "0x\\1," bytes "${hex}")
string(REPLACE "0x0a," "0x0a,\n" bytes "${bytes}")
file(WRITE ${OUTPUT} "#include \"data/digits_data.h\"

const unsigned char ${NAME}[] = {
${bytes}};
const size_t ${NAME}_size = sizeof ${NAME};
")
