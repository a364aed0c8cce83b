echo one
echo 2
echo three
