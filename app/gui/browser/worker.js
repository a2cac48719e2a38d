// A run: the program without its window, in a worker of the page's. It is given arguments and files, says its lines, and at
// the end its exit code and what it leaves in the cache.
'use strict';
var cacheFolder = '/home/web_user/.cache';
onmessage = (event) => {
  const {arguments: list, files} = event.data;
  self.Module = {
    cacheFolder,
    noInitialRun: true,
    print: (line) => postMessage({line}),
    printErr: (words) => postMessage({words}),
    onRuntimeInitialized: () => {
      page.write(files);
      let end = 1;
      try {
        end = callMain(list);
      } catch (error) {
        postMessage({words: 'The run could not go on: ' + error});
      }
      postMessage({end, files: page.filesBelow(cacheFolder)});
    },
  };
  importScripts('ridgepoint.js');
};
