// What a page does for the program (page.h), linked into it by Emscripten.
mergeInto(LibraryManager.library, {
  $page__deps: ['$FS'],
  $page: {
    workers: {},
    caught: false,
    // Calls a function of the program with a number, or none, and a text.
    say: function(name, number, text) {
      var size = lengthBytesUTF8(text) + 1, at = _malloc(size);
      stringToUTF8(text, at, size);
      if (number === null) Module['_' + name](at); else Module['_' + name](number, at);
      _free(at);
    },
    // Every file below a folder: { path: bytes }.
    filesBelow: function(folder) {
      var files = {};
      (function look(at) {
        if (!FS.analyzePath(at).exists) return;
        FS.readdir(at).forEach(function(name) {
          if (name === '.' || name === '..') return;
          var path = at + '/' + name;
          if (FS.isDir(FS.stat(path).mode)) look(path); else files[path] = FS.readFile(path);
        });
      })(folder);
      return files;
    },
    write: function(files) {
      Object.keys(files).forEach(function(path) {
        FS.mkdirTree(path.substring(0, path.lastIndexOf('/')));
        FS.writeFile(path, files[path]);
      });
    },
  },

  page_start_worker__deps: ['$page'],
  page_start_worker: function(number, json) {
    var list = JSON.parse(UTF8ToString(json));
    var files = page.filesBelow(Module.cacheFolder);
    list.forEach(function(path) {
      if (path.charAt(0) === '/' && FS.analyzePath(path).exists && FS.isFile(FS.stat(path).mode))
        files[path] = FS.readFile(path);
    });
    var worker = page.workers[number] = new Worker('worker.js');
    worker.onmessage = function(event) {
      var said = event.data;
      if (!page.workers[number]) return;
      if (said.line !== undefined) page.say('page_child_line', number, said.line);
      if (said.words !== undefined) page.say('page_child_words', number, said.words);
      if (said.end !== undefined) {
        page.write(said.files);
        Module.keepFiles();
        _page_child_end(number, said.end);
        worker.terminate();
        delete page.workers[number];
      }
    };
    worker.onerror = function(event) {
      if (!page.workers[number]) return;
      page.say('page_child_words', number, 'The run could not go on: ' + event.message);
      _page_child_end(number, 1);
      delete page.workers[number];
    };
    worker.postMessage({arguments: list, files: files});
  },

  page_end_worker__deps: ['$page'],
  page_end_worker: function(number) {
    if (page.workers[number]) page.workers[number].terminate();
    delete page.workers[number];
  },

  page_catch_lines__deps: ['$page'],
  page_catch_lines: function(yes) {
    Module.heard = yes ? function(name, line) { page.say(name, null, line); } : null;
  },

  page_set_cursor: function(css) { Module.canvas.style.cursor = UTF8ToString(css); },

  page_copy: function(text) {
    var words = UTF8ToString(text);
    if (navigator.clipboard) return void navigator.clipboard.writeText(words).catch(function() {});
    var area = document.createElement('textarea');  // pages without a secure origin have no other way
    area.value = words;
    document.body.appendChild(area);
    area.select();
    document.execCommand('copy');
    area.remove();
  },

  page_show_in_address: function(json) { Module.showInAddress(UTF8ToString(json)); },

  page_drawn: function(built, handedOver) {
    Module.drawn++;
    Module.frames.push({built: built, handedOver: handedOver});
    if (Module.frames.length > 1000) Module.frames.shift();
  },

  page_keep_files: function() { Module.keepFiles(); },

  page_save_file: function(path) {
    var name = UTF8ToString(path), link = document.createElement('a');
    link.href = URL.createObjectURL(new Blob([FS.readFile(name)]));
    link.download = name.substring(name.lastIndexOf('/') + 1);
    link.click();
    setTimeout(function() { URL.revokeObjectURL(link.href); }, 10000);
  },

  page_choose_files: function() {
    var input = document.createElement('input');
    input.type = 'file';
    input.multiple = true;
    input.onchange = function() { Module.giveFiles(input.files); };
    input.click();
  },

  page_draw_alone: function() {
    var ask = GLctx.getParameter.bind(GLctx), first = {};
    ['VIEWPORT', 'SCISSOR_BOX', 'BLEND_SRC_RGB', 'BLEND_DST_RGB', 'BLEND_SRC_ALPHA', 'BLEND_DST_ALPHA',
     'BLEND_EQUATION_RGB', 'BLEND_EQUATION_ALPHA'].forEach(function(name) { first[GLctx[name]] = ask(GLctx[name]); });
    GLctx.getParameter = function(name) { return name in first ? first[name] : ask(name); };
  },

  page_fit_canvas: function(width, height, scale) {
    var canvas = Module.canvas, ratio = window.devicePixelRatio || 1;
    var w = Math.max(1, Math.round(window.innerWidth * ratio)), h = Math.max(1, Math.round(window.innerHeight * ratio));
    if (canvas.width !== w || canvas.height !== h) {
      canvas.width = w;
      canvas.height = h;
      GLctx.viewport(0, 0, w, h);
    }
    HEAP32[width >> 2] = w;
    HEAP32[height >> 2] = h;
    HEAPF64[scale >> 3] = ratio;
  },
});
